//! The requests of a batch in calls, and the order of the calls.

use std::collections::HashMap;

use super::{CALL_BYTES, CALL_JOBS};
use crate::store::scripts::Name;

/// A request that is to be a member of a call.
pub(in crate::store) struct Member<'a> {
    /// Its index in the batch.
    pub(in crate::store) at: usize,
    /// The id of its job.
    pub(in crate::store) id: &'a str,
    pub(in crate::store) script: Name,
    pub(in crate::store) bucket: u16,
    /// Bytes of its record; zero without one.
    pub(in crate::store) bytes: usize,
    /// No other member joins its call.
    pub(in crate::store) is_alone: bool,
}

/// The members of one call: of one script and one bucket, bounded, with distinct ids.
pub(in crate::store) struct Group {
    pub(in crate::store) script: Name,
    pub(in crate::store) bucket: u16,
    bytes: usize,
    /// Indices in the batch.
    pub(in crate::store) members: Vec<usize>,
}

impl Group {
    fn has_room(&self, bytes: usize) -> bool {
        self.members.len() < CALL_JOBS && self.bytes + bytes <= CALL_BYTES
    }
}

/// Puts the second request for an id into the second wave, and so on. A wave is sent only when no
/// request of the wave before needs a repeat; otherwise a later request could be carried out before
/// an earlier one. The requests of waves beyond `most_waves` are left out.
pub(in crate::store) fn waves<'a>(
    members: impl Iterator<Item = Member<'a>>,
    most_waves: usize,
) -> Vec<Vec<Group>> {
    let mut waves: Vec<Vec<Group>> = Vec::new();
    let mut seen: HashMap<&str, usize> = HashMap::new();
    // By wave, script and bucket: the group that others may join.
    let mut unfilled: HashMap<(usize, Name, u16), usize> = HashMap::new();
    for Member { at, id, script, bucket, bytes, is_alone } in members {
        let times = seen.entry(id).or_default();
        let wave = *times;
        *times += 1;
        if wave >= most_waves {
            continue;
        }
        if waves.len() == wave {
            waves.push(Vec::new());
        }
        let groups = &mut waves[wave];
        let new = Group { script, bucket, bytes: 0, members: Vec::new() };
        let place = if is_alone {
            groups.push(new);
            groups.len() - 1
        } else {
            let place = unfilled.entry((wave, script, bucket)).or_insert(usize::MAX);
            if !groups.get(*place).is_some_and(|group| group.has_room(bytes)) {
                *place = groups.len();
                groups.push(new);
            }
            *place
        };
        groups[place].bytes += bytes;
        groups[place].members.push(at);
    }
    waves
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(at: usize, id: &str, bucket: u16) -> Member<'_> {
        Member { at, id, script: Name::Schedule, bucket, bytes: 0, is_alone: false }
    }

    /// The members of each call of each wave.
    fn placed(members: Vec<Member<'_>>, most_waves: usize) -> Vec<Vec<Vec<usize>>> {
        let calls = |groups: Vec<Group>| groups.into_iter().map(|group| group.members).collect();
        waves(members.into_iter(), most_waves).into_iter().map(calls).collect()
    }

    #[test]
    fn requests_for_one_id_are_in_waves_of_their_own() {
        let members = || vec![member(4, "a", 0), member(5, "b", 1), member(6, "a", 0)];
        assert_eq!(placed(members(), usize::MAX), [vec![vec![4], vec![5]], vec![vec![6]]]);
        assert_eq!(placed(members(), 1), [vec![vec![4], vec![5]]]);
        assert_eq!(placed(Vec::new(), 1), Vec::<Vec<Vec<usize>>>::new());
    }

    #[test]
    fn a_call_has_one_script_and_one_bucket() {
        let cancel = Member { script: Name::Cancel, ..member(2, "c", 0) };
        let members = vec![
            member(0, "a", 0),
            member(1, "b", 1),
            cancel,
            member(3, "d", 1),
            member(4, "e", 0),
        ];
        assert_eq!(placed(members, usize::MAX), [[vec![0, 4], vec![1, 3], vec![2]]]);
    }

    #[test]
    fn nobody_joins_a_member_that_is_alone() {
        let alone = Member { is_alone: true, ..member(1, "b", 0) };
        let members = vec![member(0, "a", 0), alone, member(2, "c", 0)];
        assert_eq!(placed(members, usize::MAX), [[vec![0, 2], vec![1]]]);
    }

    #[test]
    fn a_call_is_bounded_by_jobs_and_by_bytes() {
        let ids: Vec<String> = (0..=CALL_JOBS).map(|n| n.to_string()).collect();
        let members = ids.iter().enumerate().map(|(at, id)| member(at, id, 0)).collect();
        let lengths: Vec<usize> = placed(members, 1)[0].iter().map(Vec::len).collect();
        assert_eq!(lengths, [CALL_JOBS, 1]);
        let sizes = [2 * CALL_BYTES, 1, CALL_BYTES - 1, 1];
        let sized = ids.iter().zip(sizes).enumerate();
        let members = sized.map(|(at, (id, bytes))| Member { bytes, ..member(at, id, 0) });
        assert_eq!(placed(members.collect(), 1), [[vec![0], vec![1, 2], vec![3]]]);
    }
}
