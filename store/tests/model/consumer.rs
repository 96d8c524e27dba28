//! The next steps of the consumers of queues.

use crate::call::{IDS, Set};
use crate::fetch::is_ready;
use crate::hand::{Hand, Word};
use crate::steps::{Outcome, Steps, label};
use crate::world::{Op, TICK, World};

impl Steps<'_> {
    pub(crate) fn of_a_consumer(&mut self, consumer: usize) -> Outcome {
        let (who, world) = (["C", "D"][consumer], self.world);
        let mine = &world.consumers[consumer];
        if mine.is_idle() {
            if (consumer == 0 || !world.consumers[0].is_idle())
                && world.nonces < world.budget.claims
            {
                self.pops(consumer, who)?;
            }
            return Ok(());
        }
        if let Some((nonce, set)) = mine.lost {
            let op = Op::Unpop { nonce, is_early: false, set, ids: Vec::new() };
            self.say(label(who, "takes back", ""), world, &op, |after, _| {
                after.consumers[consumer].lost = None
            })?;
        }
        // A job that was popped before its time is on its way.
        let now = world.now_ms();
        for at in (0..mine.hands.len()).filter(|at| mine.hands[*at].ready <= now) {
            for word in self.scene.words {
                self.says(consumer, who, *word, at..at + 1)?;
            }
        }
        if mine.hands.len() == 2
            && mine.hands[0].set == mine.hands[1].set
            && mine.hands.iter().all(|hand| hand.ready <= now)
            && let Some(word) = self.scene.words.first()
        {
            self.says(consumer, who, *word, 0..2)?;
        }
        if self.scene.gives_back
            && let Some(first) = mine.hands.first()
        {
            // A part of a pop may have reached its consumer.
            let ids = vec![first.id];
            let is_early = first.ready > now;
            let op = Op::Unpop { nonce: first.nonce, is_early, set: first.set, ids };
            let then = |after: &mut World, _: &[Hand]| {
                after.consumers[consumer].hands.remove(0);
            };
            self.say(label(who, "gives back", IDS[usize::from(first.id)]), world, &op, then)?;
        }
        Ok(())
    }

    fn pops(&mut self, consumer: usize, who: &'static str) -> Outcome {
        let mut world = self.world.clone();
        let nonce = world.nonces;
        world.nonces += 1;
        let view = self.runner.view(world.stored.store);
        let now = world.now_ms();
        let sizes: &[u8] = if self.scene.pieces { &[2, 1] } else { &[2] };
        let aheads: &[i64] = if self.scene.early { &[0, TICK] } else { &[0] };
        let sets = [Set::Queue, Set::OtherQueue];
        for (set, ahead_ms) in
            sets.into_iter().flat_map(|set| aheads.iter().map(move |ms| (set, *ms)))
        {
            let latest = now + ahead_ms;
            let count =
                view.jobs.iter().flatten().filter(|live| is_ready(live, set, latest)).count();
            for most in sizes.iter().take(count) {
                let op = Op::Pop {
                    nonce,
                    set,
                    most: *most,
                    until: self.scene.hurries.then_some(world.tick),
                    ahead_ms,
                };
                let then = |after: &mut World, hands: &[Hand]| {
                    after.consumers[consumer].hands = hands.to_vec()
                };
                self.say(label(who, "pops", ""), &world, &op, then)?;
                if world.budget.losses > 0 {
                    let mut lost = world.clone();
                    lost.budget.losses -= 1;
                    lost.consumers[consumer].lost = Some((nonce, set));
                    self.say(label(who, "pops, the answer is lost", ""), &lost, &op, |_, _| {})?;
                    if lost.later.is_none() {
                        lost.later = Some(op);
                        self.found.push((label(who, "pops, the call is stuck", ""), lost));
                    }
                }
            }
        }
        Ok(())
    }

    /// An acknowledgement of some of the hands.
    fn says(
        &mut self,
        consumer: usize,
        who: &'static str,
        word: Word,
        range: std::ops::Range<usize>,
    ) -> Outcome {
        let hands = self.world.consumers[consumer].hands[range.clone()].to_vec();
        let which = if hands.len() == 1 { IDS[usize::from(hands[0].id)] } else { "both" };
        let op = Op::Word { word, hands };
        let then = |after: &mut World, _: &[Hand]| {
            if word != Word::Touch {
                after.consumers[consumer].hands.drain(range.clone());
            }
        };
        self.say(label(who, word.says(), which), self.world, &op, then)
    }
}
