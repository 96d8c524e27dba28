//! One sorted set, read in its order a page at a time, while others change it.

use std::collections::VecDeque;

use redis::Value;

use super::Spot;
use crate::store::Store;
use crate::store::error::StoreError;
use crate::store::read::score;

/// A sorted set that is being read. Members of one score, of which there may be 100 000, are told apart by their place among them; that place is
/// checked with each page, because members come and go meanwhile.
pub(super) struct Run {
    pub(super) bucket: u16,
    key: String,
    /// Read, and not taken yet.
    pub(super) ahead: VecDeque<Spot>,
    /// Where the next page begins: so many places behind the first member of this score or more.
    score: Option<i64>,
    offset: usize,
    /// The member just before that place, as it was read.
    before: Option<Spot>,
    /// Nothing up to here is given (again).
    floor: Option<Spot>,
    /// Scores end before this.
    end: Option<i64>,
    pub(super) ended: bool,
}

impl Run {
    /// Reads scores from `from` (included) to `to` (excluded), behind `after`.
    pub(super) fn new(bucket: u16, key: String, from: Option<i64>, to: Option<i64>, after: Option<&Spot>) -> Self {
        let score = from.max(after.map(|spot| spot.at_ms));
        Run { bucket, key, ahead: VecDeque::new(), score, offset: 0, before: None, floor: after.cloned(), end: to, ended: false }
    }

    /// Takes a page in: what is new of it goes to `ahead`.
    fn take(&mut self, page: Vec<Spot>, asked: usize) {
        let overlap = usize::from(self.offset > 0);
        if overlap == 1 && page.first() != self.before.as_ref() {
            // It changed under our hands: members of this score are read again, and what was given is passed over.
            self.offset = 0;
            self.before = None;
            return;
        }
        self.ended = page.len() < asked;
        for spot in page.into_iter().skip(overlap) {
            if self.score == Some(spot.at_ms) {
                self.offset += 1;
            } else {
                self.score = Some(spot.at_ms);
                self.offset = 1;
            }
            self.before = Some(spot.clone());
            if self.floor.as_ref().is_none_or(|floor| spot > *floor) {
                self.floor = Some(spot.clone());
                self.ahead.push_back(spot);
            }
        }
    }
}

impl Store {
    /// Reads on until something is ahead or the run has ended; about `count` members at a time.
    pub(super) async fn read_on(&self, run: &mut Run, count: usize) -> Result<(), StoreError> {
        while run.ahead.is_empty() && !run.ended {
            let overlap = usize::from(run.offset > 0);
            let asked = count + overlap;
            let mut command = redis::cmd("ZRANGEBYSCORE");
            command.arg(&run.key);
            command.arg(run.score.map_or("-inf".to_owned(), |ms| ms.to_string()));
            command.arg(run.end.map_or("+inf".to_owned(), |ms| format!("({ms}")));
            command.arg("WITHSCORES").arg("LIMIT").arg(run.offset - overlap).arg(asked);
            let page = spots(self.link.command("listing", &command).await?);
            run.take(page, asked);
        }
        Ok(())
    }
}

/// Members and scores, as RESP2 and RESP3 answer them. An id that is not UTF-8 was never written by Dwell.
fn spots(value: Value) -> Vec<Spot> {
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
            spots.push(Spot { at_ms, id });
        }
    }
    spots
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spot(at_ms: i64, id: &str) -> Spot {
        Spot { at_ms, id: id.to_owned() }
    }

    fn given(run: &mut Run) -> Vec<String> {
        run.ahead.drain(..).map(|spot| spot.id).collect()
    }

    #[test]
    fn members_of_one_score_are_told_apart_by_their_place() {
        let mut run = Run::new(0, String::new(), None, None, None);
        run.take(vec![spot(1, "a"), spot(5, "b")], 2);
        assert_eq!((run.score, run.offset, run.ended), (Some(5), 1, false));
        run.take(vec![spot(5, "b"), spot(5, "c"), spot(5, "d")], 3);
        assert_eq!((run.score, run.offset, given(&mut run)), (Some(5), 3, vec!["a".into(), "b".into(), "c".into(), "d".into()]));
        run.take(vec![spot(5, "d")], 3);
        assert!(run.ended);
    }

    #[test]
    fn a_set_that_changed_under_our_hands_gives_nothing_twice_and_skips_nothing() {
        let mut run = Run::new(0, String::new(), None, None, None);
        run.take(vec![spot(5, "a"), spot(5, "b")], 2);
        assert_eq!(given(&mut run), ["a", "b"]);
        // `a` is gone: the place before ours holds another.
        run.take(vec![spot(5, "c"), spot(5, "d")], 3);
        assert_eq!((run.offset, run.ended), (0, false));
        run.take(vec![spot(5, "b"), spot(5, "c"), spot(5, "d")], 4);
        assert_eq!(given(&mut run), ["c", "d"]);
    }
}
