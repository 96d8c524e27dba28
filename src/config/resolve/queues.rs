//! `[queues.NAME]`.

use super::Resolver;
use crate::config::queues::tie;
use crate::config::rules::{self, MAX_DURATION_MS};
use crate::config::{Delivery, Limits, QueueRules, Queues, raw};

impl Resolver<'_> {
    pub(super) fn queues(
        &mut self,
        limits: Option<&Limits>,
        delivery: Option<&Delivery>,
    ) -> Queues {
        let names = self.names("queues");
        let mut all = Vec::new();
        for (at, name) in names.iter().enumerate() {
            self.check_at(&["queues", name], rules::queue(name));
            if let Some(other) = names[..at].iter().find(|other| tie(name, other)) {
                let wrong = format!(
                    "queues.\"{other}\" has as many characters besides `*`, and some names match both"
                );
                let hint = "make one of them longer, or declare the names themselves".to_owned();
                self.note_at(&["queues", name], (wrong, hint));
            }
            all.extend(self.queue(name, limits, delivery));
        }
        Queues::new(all)
    }

    fn queue(
        &mut self,
        name: &str,
        limits: Option<&Limits>,
        delivery: Option<&Delivery>,
    ) -> Option<QueueRules> {
        // `walk` checked the types, and every key has a default.
        let value = self.value.as_dict()?.get("queues")?.as_dict()?.get(name)?.clone();
        let raw: raw::Queue = value.deserialize().ok()?;
        let ttr_ms = self.ttr(&["queues", name, "ttr"], &raw.ttr, limits);
        let retry_ms = match &raw.retry {
            Some(waits) => self.retry(&["queues", name, "retry"], waits, limits),
            None => delivery.map(|delivery| delivery.retry_ms.clone()),
        };
        let dead_retention = self.check_at(
            &["queues", name, "dead_retention"],
            rules::duration(&raw.dead_retention, 0, MAX_DURATION_MS),
        );
        Some(QueueRules {
            name: name.to_owned(),
            ttr_ms: ttr_ms?,
            retry_ms: retry_ms?,
            on_timeout: raw.on_timeout,
            max_jobs: Some(raw.max_jobs).filter(|most| *most > 0),
            dead_retention_ms: dead_retention?,
        })
    }
}
