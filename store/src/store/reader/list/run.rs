//! Reads one sorted set in its order, a page at a time, while others change the set.

use std::collections::VecDeque;

use redis::Value;

use super::Cursor;
use crate::store::answer::score;
use crate::store::call::CALL_JOBS;
use crate::store::error::StoreError;
use crate::store::reader::Reader;

/// The number of members that each page reads again, so that a few removals do not make it skip
/// members.
const OVERLAP_MEMBERS: usize = 8;

/// A sorted set in the course of reading.
///
/// Members of one score, of which a set may have 100 000, are ordered by id; the read position is
/// an offset among them. Other clients add and remove members, which shifts the offset. A page is
/// therefore accepted only if it begins at or before the last member that was returned: then
/// nothing was skipped. Otherwise the reader goes back, further each time.
pub(super) struct Run {
    pub(super) bucket: u16,
    key: String,
    /// Members that are read and not returned yet.
    pub(super) ahead: VecDeque<Cursor>,
    /// The begin of the next page, without the overlap: `offset` members after the first one with
    /// this score or more.
    score: Option<i64>,
    offset: usize,
    /// The number of members to go back if the next page begins too late.
    back: usize,
    /// Members up to this one are not returned (again).
    floor: Option<Cursor>,
    /// Scores end before this value.
    end: Option<i64>,
    pub(super) ended: bool,
}

impl Run {
    /// Reads scores from `from` (included) to `to` (excluded), after `after`.
    pub(super) fn new(
        bucket: u16,
        key: String,
        from: Option<i64>,
        to: Option<i64>,
        after: Option<&Cursor>,
    ) -> Self {
        let score = from.max(after.map(|spot| spot.at_ms));
        let (ahead, floor) = (VecDeque::new(), after.cloned());
        Run {
            bucket,
            key,
            ahead,
            score,
            offset: 0,
            back: OVERLAP_MEMBERS,
            floor,
            end: to,
            ended: false,
        }
    }

    /// The offset of the next page.
    fn begin(&self) -> usize {
        self.offset.saturating_sub(OVERLAP_MEMBERS)
    }

    /// Accepts a page that began at `begin` and moves its new members to `ahead`.
    fn take(&mut self, page: Vec<Cursor>, asked: usize) {
        let begin = self.begin();
        let joins = page
            .first()
            .is_some_and(|first| self.floor.as_ref().is_some_and(|floor| first <= floor));
        if begin > 0 && !joins {
            self.offset = begin.saturating_sub(self.back);
            self.back *= 4;
            return;
        }
        self.back = OVERLAP_MEMBERS;
        self.offset = begin;
        self.ended = page.len() < asked;
        for spot in page {
            if self.score == Some(spot.at_ms) {
                self.offset += 1;
            } else {
                self.score = Some(spot.at_ms);
                self.offset = 1;
            }
            if self.floor.as_ref().is_none_or(|floor| spot > *floor) {
                self.floor = Some(spot.clone());
                self.ahead.push_back(spot);
            }
        }
    }
}

impl Reader {
    /// Finds the approximate offset of the floor among the members of its score by binary search,
    /// instead of reading up to it.
    pub(super) async fn seek(&self, run: &mut Run) -> Result<(), StoreError> {
        let Some(floor) = run.floor.clone().filter(|floor| run.score == Some(floor.at_ms)) else {
            return Ok(());
        };
        let count = async |from: String, to: String| {
            let mut command = redis::cmd("ZCOUNT");
            command.arg(&run.key).arg(from).arg(to);
            Ok::<usize, StoreError>(
                match self.namespace.link.command("listing", &command).await? {
                    Value::Int(count) => usize::try_from(count).unwrap_or(0),
                    _ => 0,
                },
            )
        };
        let of_score = count(floor.at_ms.to_string(), floor.at_ms.to_string()).await?;
        if of_score <= CALL_JOBS {
            return Ok(());
        }
        let first = count("-inf".to_owned(), format!("({}", floor.at_ms)).await?;
        let (mut low, mut high) = (0, of_score);
        while low < high {
            let middle = low.midpoint(high);
            let mut command = redis::cmd("ZRANGE");
            command.arg(&run.key).arg(first + middle).arg(first + middle).arg("WITHSCORES");
            match spots(self.namespace.link.command("listing", &command).await?).pop() {
                Some(spot) if spot <= floor => low = middle + 1,
                _ => high = middle,
            }
        }
        run.offset = low;
        Ok(())
    }

    /// Reads about `count` members at a time until some are ahead or the set ends.
    pub(super) async fn read_on(&self, run: &mut Run, count: usize) -> Result<(), StoreError> {
        while run.ahead.is_empty() && !run.ended {
            let asked = count + run.offset - run.begin();
            let mut command = redis::cmd("ZRANGEBYSCORE");
            command.arg(&run.key);
            command.arg(run.score.map_or("-inf".to_owned(), |ms| ms.to_string()));
            command.arg(run.end.map_or("+inf".to_owned(), |ms| format!("({ms}")));
            command.arg("WITHSCORES").arg("LIMIT").arg(run.begin()).arg(asked);
            let page = spots(self.namespace.link.command("listing", &command).await?);
            run.take(page, asked);
        }
        Ok(())
    }
}

/// Members and scores, in the form of RESP2 or RESP3. An id that is not UTF-8, which Dwell never
/// writes, is skipped.
fn spots(value: Value) -> Vec<Cursor> {
    let Value::Array(items) = value else { return Vec::new() };
    let mut items = items.into_iter();
    let mut spots = Vec::new();
    while let Some(item) = items.next() {
        let (id, ms) = match item {
            Value::Array(pair) => {
                let mut pair = pair.into_iter();
                (pair.next(), pair.next())
            }
            id => (Some(id), items.next()),
        };
        if let (Some(Value::BulkString(id)), Some(at_ms)) = (id, ms.and_then(score))
            && let Ok(id) = String::from_utf8(id)
        {
            spots.push(Cursor { at_ms, id });
        }
    }
    spots
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spot(at_ms: i64, id: &str) -> Cursor {
        Cursor { at_ms, id: id.to_owned() }
    }

    /// Reads the next page from a set with these members.
    fn read(run: &mut Run, members: &[Cursor], count: usize) -> Vec<String> {
        let mut pages = 0;
        while run.ahead.is_empty() && !run.ended {
            let asked = count + run.offset - run.begin();
            let rest =
                members.iter().filter(|spot| run.score.is_none_or(|score| spot.at_ms >= score));
            run.take(rest.skip(run.begin()).take(asked).cloned().collect(), asked);
            pages += 1;
            assert!(pages < 100, "it goes on for ever");
        }
        run.ahead.drain(..).map(|spot| spot.id).collect()
    }

    fn members(ids: impl IntoIterator<Item = u32>) -> Vec<Cursor> {
        ids.into_iter().map(|number| spot(5, &format!("{number:05}"))).collect()
    }

    #[test]
    fn members_of_one_score_are_told_apart_by_their_place() {
        let set: Vec<Cursor> = [vec![spot(1, "a")], members(0..100), vec![spot(9, "z")]].concat();
        let mut run = Run::new(0, String::new(), None, None, None);
        let mut all = Vec::new();
        while !run.ended {
            all.append(&mut read(&mut run, &set, 7));
        }
        assert!(all.iter().eq(set.iter().map(|spot| &spot.id)), "{all:?}");
    }

    #[test]
    fn a_set_that_changes_under_our_hands_gives_nothing_twice_and_skips_nothing() {
        // At every page, another part of the earlier members has come or gone.
        for gone in [0_u32, 3, 50, 900] {
            let mut run = Run::new(0, String::new(), None, None, None);
            let (mut all, mut page) = (Vec::new(), 0_u32);
            while !run.ended {
                let given = u32::try_from(all.len()).unwrap();
                let away =
                    |number: u32| number < given && number % 2 == page % 2 && given - number < gone;
                all.append(&mut read(
                    &mut run,
                    &members((0..1000).filter(|number| !away(*number))),
                    40,
                ));
                page += 1;
            }
            assert!(all.iter().eq(members(0..1000).iter().map(|spot| &spot.id)), "{gone}: {all:?}");
        }
    }

    #[test]
    fn a_place_that_was_found_and_is_wrong_by_now_is_found_again() {
        let set = members(0..1000);
        for offset in [0, 1, 400, 500, 501, 700, 1000, 5000] {
            let mut run = Run::new(0, String::new(), None, None, Some(&set[500]));
            run.offset = offset;
            assert_eq!(read(&mut run, &set, 40)[0], "00501", "{offset}");
        }
        let mut run = Run::new(0, String::new(), None, None, Some(&set[999]));
        run.offset = 2000;
        assert_eq!(read(&mut run, &set, 40), Vec::<String>::new());
    }
}
