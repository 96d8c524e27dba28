//! An exhaustive model of the store: breadth first through all states of small scenes, where each
//! step runs the real Lua text over a small Redis in memory.
//!
//! Two jobs of one bucket, two instances, two consumers. Everything between two calls may fail: an
//! instance dies, an answer is lost, a call is carried out once more at any later moment, a message
//! comes again, leases end, and a failover takes the last writes back.
//!
//! - `redis`, `reply`: the data and its commands; `lua`, `packing`: the scripts; `call`: their
//!   arguments, as the store builds them; `taken`: the answer of a claim.
//! - `differential`, `real`, `random`: the Redis in memory against a real one; `shared`: calls that
//!   share a command against the same calls one by one.
//! - `scene`: the initial programs; `world`: a state; `steps`: the possible next steps; `apply`,
//!   `door`: the effects of a call; `runner`: each call on each store once; `explore`: the search.
//! - `queues`: the scenes of queues; `hand`, `consumer`: the jobs of consumers, and their next
//!   steps; `fetch`: the rules of their calls.
//! - `recurring`: a recurring schedule, with a search of its own.
//! - `view`, `check`, `drain`, `repair`: the rules. `mutants`, `rules`: each rule taken away must
//!   be missed.
//!
//! Tests run a part of each scene; `DWELL_MODEL=full` runs all, as `make model` does. `DWELL_SCENE`
//! and `DWELL_RULE` choose by a part of the name.
//!
//! A new command of Redis: `redis.rs`. A new script: its keys in `call.rs`, its arguments in
//! `random.rs`; the compiler names both places. To explore it: an `Op` or a `Door`, with its rules
//! in `apply.rs`, and a scene. A new fixed key that holds jobs: a `Location` in `view.rs`.
#![allow(missing_docs, reason = "tests")]

mod apply;
mod call;
mod check;
mod consumer;
mod differential;
mod door;
mod drain;
mod explore;
mod fetch;
mod hand;
mod lua;
mod mutants;
mod packing;
mod queues;
mod random;
mod real;
mod recurring;
mod redis;
mod repair;
mod reply;
mod rules;
mod runner;
mod scene;
mod shared;
mod steps;
mod taken;
mod view;
mod world;

use dwell_store::clock;
use rand::SeedableRng as _;
use rand::rngs::StdRng;

use explore::{explore, walk};
use mutants::MUTANTS;
use queues::{everything_of_queues, queue_scenes};
use rules::RULES;
use runner::Runner;
use scene::{Scene, everything, scenes};

fn is_full() -> bool {
    std::env::var_os("DWELL_MODEL").is_some_and(|value| value == "full")
}

fn is_asked_for(scene: &Scene) -> bool {
    std::env::var("DWELL_SCENE").map_or(true, |part| scene.name.contains(&part))
}

#[test]
fn every_path_keeps_the_rules() {
    let is_full = is_full();
    let (begun, mut states, mut transitions) = (clock::now(), 0, 0);
    for scene in scenes().into_iter().chain(queue_scenes()).filter(is_asked_for) {
        let begun = clock::now();
        let mut runner = Runner::new(|name| name.source(1));
        let found = explore(&mut runner, &scene, if is_full { usize::MAX } else { 3_000 });
        println!(
            "{}: {} states{}, {} transitions, {} stores, {} script runs, {:.1} s",
            scene.name,
            found.states,
            if found.is_cut { " (cut)" } else { "" },
            found.transitions,
            runner.stores(),
            runner.runs,
            begun.elapsed().as_secs_f64()
        );
        if let Some((why, trace)) = found.counterexample {
            panic!("{}: {why}\n{trace}", scene.name);
        }
        states += found.states;
        transitions += found.transitions;
    }
    println!("{states} states, {transitions} transitions, {:.1} s", begun.elapsed().as_secs_f64());
}

#[test]
fn long_random_paths_keep_the_rules() {
    let walks = if is_full() { 3_000 } else { 120 };
    let all = [
        everything(false),
        everything(true),
        everything_of_queues(false),
        everything_of_queues(true),
    ];
    for everything in all.into_iter().filter(is_asked_for) {
        let (begun, mut states) = (clock::now(), 0);
        let mut runner = Runner::new(|name| name.source(1));
        for seed in 0..walks {
            // Bounds the memory: paths this long have little in common.
            if runner.stores() > 100_000 {
                runner = Runner::new(|name| name.source(1));
            }
            let found = walk(&mut runner, &everything, &mut StdRng::seed_from_u64(seed));
            if let Some((why, trace)) = found.counterexample {
                panic!("seed {seed}: {why}\n{trace}");
            }
            states += found.states;
        }
        println!("{walks} walks, {states} states, {:.1} s", begun.elapsed().as_secs_f64());
    }
}

#[test]
fn without_any_rule_a_path_breaks() {
    let scenes: Vec<_> = scenes().into_iter().chain(queue_scenes()).collect();
    let mut alive = Vec::new();
    let asked = std::env::var("DWELL_RULE").unwrap_or_default();
    let mutants: Vec<_> =
        MUTANTS.iter().chain(RULES).filter(|mutant| mutant.rule.contains(&asked)).collect();
    for mutant in &mutants {
        let begun = clock::now();
        let found = mutant.scenes.iter().find_map(|name| {
            let scene = scenes
                .iter()
                .find(|scene| scene.name == *name)
                .unwrap_or_else(|| panic!("no scene `{name}`"));
            let found = explore(&mut Runner::new(|name| mutant.source(name)), scene, 60_000);
            found.counterexample.map(|(why, trace)| (found.states, why, trace))
        });
        match found {
            Some((states, why, trace)) => {
                println!(
                    "{}: {why}, after {states} states, {:.1} s\n    {trace}",
                    mutant.rule,
                    begun.elapsed().as_secs_f64()
                )
            }
            None => alive.push(mutant.rule),
        }
    }
    println!("{} of {} mutants killed", mutants.len() - alive.len(), mutants.len());
    assert!(alive.is_empty(), "no counterexample without: {alive:#?}");
}
