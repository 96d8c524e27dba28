//! Requests over HTTP.

use dwell_testkit::environment::Result;
use http::Method;
use serde_json::Value;

use super::plan::{Fate, Planned};
use super::stage::{Scene, Stage};

/// The requests of a plan over HTTP; the function makes the body of one.
pub(super) struct Calls<F>(pub(super) F);

impl<F: Fn(&Planned) -> Value> Scene for Calls<F> {
    async fn send(&mut self, stage: &mut Stage<'_>, plan: &[Planned]) -> Result<()> {
        // A wrong job would stop none of the others in an array; alone it is answered by a problem.
        let (bad, good): (Vec<&Planned>, Vec<&Planned>) =
            plan.iter().partition(|planned| matches!(planned.fate, Fate::Rejected(_)));
        let good: Vec<Value> = good.into_iter().map(&self.0).collect();
        let answer = stage.api.post("/v1/jobs", &Value::from(good)).await?;
        if answer.status / 100 != 2 {
            return Err(answer.unexpected("POST /v1/jobs"));
        }
        let (count, to) = (plan.len(), "POST /v1/jobs");
        stage
            .screen
            .say(&format!("sent      {count} requests to {to}, for later: 0.5 s to 6 s"))?;
        for planned in bad {
            let problem = stage.api.post("/v1/jobs", &(self.0)(planned)).await?.json;
            let text = |name: &str| problem[name].as_str().unwrap_or("?");
            let rejected = stage.expectations.rejected(&planned.id, text("code"), text("detail"));
            stage.screen.say(&rejected)?;
        }
        Ok(())
    }

    async fn cancel(&mut self, stage: &mut Stage<'_>, id: &str) -> Result<()> {
        let answer = stage.api.call(Method::DELETE, &format!("/v1/jobs/{id}"), None).await?.json;
        let verdict = stage.expectations.verdict(id, answer["verdict"].as_str().unwrap_or("?"));
        Ok(stage.screen.say(&verdict)?)
    }
}
