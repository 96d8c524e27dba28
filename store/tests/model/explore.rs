//! The breadth-first exploration of a scene: the first counterexample is a shortest one.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};

use rand::RngExt as _;
use rand::rngs::StdRng;

use crate::call::{Call, job};
use crate::redis::Store;
use crate::runner::{Broken, Runner};
use crate::scene::Scene;
use crate::steps::{Label, steps};
use crate::world::{SPAN, World, at, moment};

/// The result of an exploration.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) states: usize,
    pub(crate) transitions: usize,
    /// Some states were not visited.
    pub(crate) is_cut: bool,
    /// The broken rule, and the steps that lead to it.
    pub(crate) counterexample: Option<(Broken, Trace)>,
}

/// Steps from the beginning.
#[derive(Debug)]
pub(crate) struct Trace(Vec<Label>);

impl fmt::Display for Trace {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = |label: &Label| {
            let words = [label.who, label.what, label.which];
            words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
        };
        out.write_str(&self.0.iter().map(words).collect::<Vec<_>>().join(" > "))
    }
}

/// States by a hash of 128 bits: two different states do not share a hash.
struct Seen {
    hashers: [RandomState; 2],
    seen: HashSet<[u64; 2]>,
}

impl Seen {
    fn is_new(&mut self, world: &World) -> bool {
        let world = world.canonical();
        self.seen.insert(self.hashers.each_ref().map(|hasher| hasher.hash_one(&world)))
    }
}

/// The store with x and y, scheduled by the script itself.
pub(crate) fn begin(runner: &mut Runner, scene: &Scene) -> Result<World, Broken> {
    let mut store = runner.number(Store::default())?;
    for id in 0..2 {
        let number = id + 1;
        let call = Call::schedule(
            id,
            number,
            number,
            at(scene.due[usize::from(id)]),
            job(number, SPAN as u32, scene.set, scene.held),
        )
        .on(scene.sets());
        store = runner.run(store, &moment(at(0), 1, 0), call)?.0;
    }
    Ok(World::begin(scene, store))
}

/// Visits every state of a scene, or `most` states.
pub(crate) fn explore(runner: &mut Runner, scene: &Scene, most: usize) -> Found {
    let mut found = Found::default();
    let first = match begin(runner, scene) {
        Ok(first) => first,
        Err(why) => return Found { counterexample: Some((why, Trace(Vec::new()))), ..found },
    };
    let mut seen = Seen { hashers: Default::default(), seen: HashSet::new() };
    seen.is_new(&first);
    // Per state: the one before, and the step.
    let mut paths: Vec<(usize, Option<Label>)> = vec![(0, None)];
    let mut queue = VecDeque::from([(0, first)]);
    while let Some((at, world)) = queue.pop_front() {
        if found.states == most {
            found.is_cut = true;
            break;
        }
        found.states += 1;
        let next = runner
            .check(&world)
            .map_err(|why| (None, why))
            .and_then(|()| steps(runner, scene, &world).map_err(|(label, why)| (Some(label), why)));
        let next = match next {
            Ok(next) => next,
            Err((label, why)) => {
                found.counterexample = Some((why, trace(&paths, at, label)));
                break;
            }
        };
        found.transitions += next.len();
        for (label, after) in next {
            if seen.is_new(&after) {
                paths.push((at, Some(label)));
                queue.push_back((paths.len() - 1, after));
            }
        }
    }
    found
}

fn trace(paths: &[(usize, Option<Label>)], mut at: usize, last: Option<Label>) -> Trace {
    let mut labels: Vec<Label> = last.into_iter().collect();
    while let (before, Some(label)) = paths[at] {
        labels.push(label);
        at = before;
    }
    labels.reverse();
    Trace(labels)
}

/// Walks at random until no step is left.
pub(crate) fn walk(runner: &mut Runner, scene: &Scene, rng: &mut StdRng) -> Found {
    let mut found = Found::default();
    let mut labels = Vec::new();
    let broken = |why, labels| Some((why, Trace(labels)));
    let mut world = match begin(runner, scene) {
        Ok(first) => first,
        Err(why) => return Found { counterexample: broken(why, labels), ..found },
    };
    loop {
        if let Err(why) = runner.check(&world) {
            return Found { counterexample: broken(why, labels), ..found };
        }
        let mut next = match steps(runner, scene, &world) {
            Ok(next) => next,
            Err((label, why)) => {
                labels.push(label);
                return Found { counterexample: broken(why, labels), ..found };
            }
        };
        found.states += 1;
        found.transitions += next.len();
        if next.is_empty() {
            return found;
        }
        let label;
        (label, world) = next.swap_remove(rng.random_range(0..next.len()));
        labels.push(label);
    }
}
