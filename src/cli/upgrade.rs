//! `dwell upgrade`: brings an older namespace to the schema that this version writes, directly in
//! Redis.

use serde::Serialize;

use super::common::Common;
use super::exit::{Exit, Stop};
use crate::store::admin::upgrade::{Upgraded, upgrade};

/// `dwell upgrade`
#[derive(Debug, Clone, clap::Args)]
pub struct Args {}

/// What was done: the schema before and after.
#[derive(Serialize)]
struct Done<'a> {
    namespace: &'a str,
    from: u32,
    to: u32,
}

pub(super) async fn run(common: &Common, _: &Args) -> Result<Exit, Stop> {
    let settings = common.settings()?;
    let namespace = &settings.redis.namespace;
    let Upgraded { from, to } = upgrade(&settings.redis).await?;
    let done = Done { namespace, from, to };
    common.answer(&done, &text(&done))?;
    Ok(Exit::Ok)
}

fn text(done: &Done<'_>) -> String {
    let Done { namespace, from, to } = done;
    if from == to {
        return format!(
            "namespace {namespace} has schema {to}, which this version writes: nothing to do"
        );
    }
    format!("namespace {namespace} has schema {to} now, and had schema {from}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_says_whether_there_was_something_to_do() {
        let said = |from| text(&Done { namespace: "dwell", from, to: 3 });
        assert_eq!(
            said(3),
            "namespace dwell has schema 3, which this version writes: nothing to do"
        );
        assert_eq!(said(2), "namespace dwell has schema 3 now, and had schema 2");
    }
}
