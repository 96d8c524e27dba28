//! `[queues.NAME]`.

use super::Resolver;
use crate::config::queues::tie;
use crate::config::{Delivery, Limits, QueueRules, Queues, rules};

impl Resolver<'_> {
    pub(super) fn queues(&mut self, limits: &Limits, delivery: &Delivery) -> Queues {
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
            let mut rules: QueueRules = self.read(&["queues", name]);
            rules.name.clone_from(name);
            self.check_ttr(&["queues", name, "ttr"], limits);
            let waits = rules.retry.get_or_insert_with(|| delivery.retry.clone());
            let path = ["queues", name.as_str(), "retry"];
            if self.written(&path).is_some() {
                self.check_retry(&path, waits, limits);
            }
            match &rules.rate {
                Some(rate) => {
                    self.check_at(&["queues", name, "rate"], rules::rate(rate));
                }
                None if rules.burst.is_some() => {
                    let wrong = ("a burst needs a rate".to_owned(), "write a rate too".to_owned());
                    self.note_at(&["queues", name, "burst"], wrong);
                }
                None => {}
            }
            all.push(rules);
        }
        Queues::new(all)
    }
}
