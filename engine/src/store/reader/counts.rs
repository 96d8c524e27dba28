//! How many jobs a namespace has: by state, bucket and broker.

use redis::{Pipeline, Value};

use crate::job::set_of_queue;
use crate::store::error::StoreError;
use crate::store::reader::Reader;
use crate::store::reader::leases;
use crate::store::reader::lookup::score;

/// Counts of a namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Jobs in `due`, per bucket, without those of queues that are due.
    pub scheduled: Vec<u64>,
    /// Jobs of queues that are due and not fetched, per bucket.
    pub ready: Vec<u64>,
    /// Jobs in leases, held for their consumers or fetched from a queue, per bucket.
    pub reserved: Vec<u64>,
    /// Jobs in `dead`, per bucket.
    pub dead: Vec<u64>,
    /// Jobs in `due` per broker.
    pub brokers: Vec<(String, u64)>,
    /// Jobs in `due` whose due time has passed, without those of queues.
    pub overdue: u64,
    /// Jobs due within each of the requested spans from now, in the order of the spans; overdue ones
    /// too, but no ready ones.
    pub within: Vec<u64>,
    /// The earliest due time, epoch ms; of an overdue job too, but of no ready one.
    pub next_due_ms: Option<i64>,
    /// Redis's clock at the count, epoch ms.
    pub now_ms: i64,
}

impl Reader {
    /// Counts all jobs. `within`: spans from now, seconds.
    pub async fn counts(&self, within: &[u64]) -> Result<Counts, StoreError> {
        let now_ms = self.namespace.read_clock().await? / 1000;
        let (brokers, queues) = (self.namespace.brokers(), self.namespace.queues());
        let mut counts = Counts {
            within: vec![0; within.len()],
            brokers: brokers.iter().map(|name| (name.clone(), 0)).collect(),
            now_ms,
            ..Counts::default()
        };
        for bucket in 0..self.namespace.keys.buckets() {
            let mut pipeline = Pipeline::new();
            pipeline.cmd("HGETALL").arg(self.namespace.keys.left(bucket));
            pipeline.cmd("ZCARD").arg(self.namespace.keys.held(bucket));
            pipeline.cmd("ZCARD").arg(self.namespace.keys.dead(bucket));
            // What is due of a queue waits for a consumer, not for Dwell.
            let of_queues = queues.iter().map(|queue| (set_of_queue(queue), format!("({now_ms}")));
            for (set, from) in brokers.iter().map(|broker| (broker.clone(), "-inf".to_owned())).chain(of_queues) {
                let due = self.namespace.keys.due(bucket, &set);
                pipeline.cmd("ZCARD").arg(&due);
                pipeline.cmd("ZCOUNT").arg(&due).arg("-inf").arg(now_ms);
                pipeline.cmd("ZRANGEBYSCORE").arg(&due).arg(&from).arg("+inf").arg("WITHSCORES").arg("LIMIT").arg(0).arg(1);
                for seconds in within {
                    pipeline.cmd("ZCOUNT").arg(&due).arg(&from).arg(now_ms + i64::try_from(seconds * 1000).unwrap_or(i64::MAX / 2));
                }
            }
            for queue in queues.iter() {
                pipeline.cmd("ZCARD").arg(self.namespace.keys.dead_of(bucket, &set_of_queue(queue)));
            }
            let mut answers = self.namespace.link.pipeline("counting", &pipeline).await?.into_iter();
            let lent = answers.next().map_or(0, leases::count);
            let mut number = || match answers.next() {
                Some(Value::Int(number)) => u64::try_from(number).unwrap_or(0),
                _ => 0,
            };
            counts.reserved.push(lent + number());
            let mut dead = number();
            let (mut scheduled, mut ready) = (0, 0);
            let of_brokers = counts.brokers.iter_mut().map(|(_, count)| Some(count));
            for of_broker in of_brokers.chain(queues.iter().map(|_| None)) {
                let mut number = || match answers.next() {
                    Some(Value::Int(number)) => u64::try_from(number).unwrap_or(0),
                    _ => 0,
                };
                let (waiting, past) = (number(), number());
                match of_broker {
                    Some(of_broker) => {
                        scheduled += waiting;
                        *of_broker += waiting;
                        counts.overdue += past;
                    }
                    None => {
                        scheduled += waiting.saturating_sub(past);
                        ready += past;
                    }
                }
                if let Some(Value::Array(head)) = answers.next()
                    && let Some(ms) = head.into_iter().nth(1).and_then(score)
                {
                    counts.next_due_ms = Some(counts.next_due_ms.map_or(ms, |first: i64| first.min(ms)));
                }
                for span in &mut counts.within {
                    if let Some(Value::Int(number)) = answers.next() {
                        *span += u64::try_from(number).unwrap_or(0);
                    }
                }
            }
            for _ in queues.iter() {
                if let Some(Value::Int(number)) = answers.next() {
                    dead += u64::try_from(number).unwrap_or(0);
                }
            }
            counts.dead.push(dead);
            counts.scheduled.push(scheduled);
            counts.ready.push(ready);
        }
        Ok(counts)
    }
}
