//! Runs calls on numbered stores, and each call on a store once. Checks each answer: the call is
//! idempotent, and `fsck` finds no damage in the store after it.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use dwell_store::store::scripts::Name;

use crate::call::{Call, Sets};
use crate::drain::drain;
use crate::lua::Scripts;
use crate::redis::{Moment, Store};
use crate::repair::repair;
use crate::reply::Reply;
use crate::view::View;
use crate::world::SPAN;

/// A rule that does not hold, in words.
pub(crate) type Broken = String;

pub(crate) struct Runner {
    scripts: Scripts,
    stores: Vec<(Store, Rc<View>)>,
    numbers: HashMap<Store, u32>,
    calls: HashMap<Call, u32>,
    known: HashMap<(u32, Moment, u32), (u32, Rc<Reply>)>,
    judged: HashSet<(u32, i64)>,
    drained: HashSet<u32>,
    /// The number of scripts that ran.
    pub(crate) runs: u64,
}

impl Runner {
    pub(crate) fn new(source: impl Fn(Name) -> String) -> Runner {
        Runner {
            scripts: Scripts::new(source),
            stores: Vec::new(),
            numbers: HashMap::new(),
            calls: HashMap::new(),
            known: HashMap::new(),
            judged: HashSet::new(),
            drained: HashSet::new(),
            runs: 0,
        }
    }

    /// The number of a store.
    pub(crate) fn number(&mut self, store: Store) -> Result<u32, Broken> {
        if let Some(number) = self.numbers.get(&store) {
            return Ok(*number);
        }
        let view = View::of(&store)?;
        let number = u32::try_from(self.stores.len()).expect("fewer than 2^32 stores");
        self.stores.push((store.clone(), Rc::new(view)));
        self.numbers.insert(store, number);
        Ok(number)
    }

    pub(crate) fn store(&self, number: u32) -> &Store {
        &self.stores[number as usize].0
    }

    pub(crate) fn view(&self, number: u32) -> Rc<View> {
        self.stores[number as usize].1.clone()
    }

    /// The number of different stores so far.
    pub(crate) fn stores(&self) -> usize {
        self.stores.len()
    }

    /// Runs a call. Repeated at once, it must change nothing.
    pub(crate) fn run(
        &mut self,
        store: u32,
        moment: &Moment,
        call: Call,
    ) -> Result<(u32, Rc<Reply>), Broken> {
        let new = u32::try_from(self.calls.len()).expect("fewer than 2^32 calls");
        let number = *self.calls.entry(call.clone()).or_insert(new);
        let key = (store, moment.clone(), number);
        if let Some((after, reply)) = self.known.get(&key) {
            return Ok((*after, reply.clone()));
        }
        let (after, reply) = self.scripts.run(self.store(store), moment, &call);
        self.runs += 1;
        let is_late = |error: &str| {
            call.name == Name::Pop && error.starts_with("DWELL_LATE") && after == *self.store(store)
        };
        if let Reply::Error(error) = &reply
            && !is_late(error)
        {
            return Err(format!("{} fails: {error}", call.name.as_str()));
        }
        if after != *self.store(store) {
            let (again, _) = self.scripts.run(&after, moment, &call);
            self.runs += 1;
            if again != after {
                return Err(format!("{} repeated at once changes something", call.name.as_str()));
            }
        }
        let after = self.number(after)?;
        let reply = Rc::new(reply);
        self.known.insert(key, (after, reply.clone()));
        Ok((after, reply))
    }

    /// `fsck` finds no damage at this time, and nothing is lost.
    pub(crate) fn classify(&mut self, store: u32, moment: &Moment) -> Result<(), Broken> {
        if !self.judged.insert((store, moment.now_us / 1000)) {
            return Ok(());
        }
        let before = self.store(store);
        let sets = self.view(store).sets();
        let (between, leases) =
            self.scripts.run(before, moment, &Call::fsck_leases(true, SPAN).on(sets));
        let (after, jobs) =
            self.scripts.run(&between, moment, &Call::fsck_jobs(true, SPAN).on(sets));
        if leases != Reply::Array(Vec::new()) || jobs != Reply::Array(vec![Reply::Int(2)]) {
            let words = jobs
                .items()
                .iter()
                .map(Reply::text)
                .filter(|word| !word.is_empty())
                .collect::<Vec<_>>();
            return Err(format!(
                "fsck finds {} damaged leases, and of the jobs: {}",
                leases.items().len(),
                words.join(" ")
            ));
        }
        if after != *before {
            return Err("fsck finds no damage, and changes something".to_owned());
        }
        self.runs += 2;
        if sets == Sets::All {
            self.runs += repair(&self.scripts, self.store(store), &self.view(store), moment)?;
        }
        if self.drained.insert(store) {
            self.runs += drain(&self.scripts, self.store(store), &self.view(store))?;
        }
        Ok(())
    }
}
