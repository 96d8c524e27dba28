//! The names of queues in a path.

use axum::extract::{FromRequestParts, Path};
use axum::http::StatusCode;
use axum::http::request::Parts;

use super::caller::Caller;
use super::state::Api;
use crate::http::server::Problem;
use crate::job::is_queue_name;
use crate::queues::MAX_POP_QUEUES;
use crate::request::{Code, Rejection};
use crate::units::quote_address;

/// The OpenAPI description of queue names.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Path)]
#[allow(dead_code, reason = "only described")]
pub(super) struct InPath {
    /// The queue; for a pop, up to 100 queues, separated by commas
    #[param(pattern = r"^[A-Za-z0-9._-]{1,255}(,[A-Za-z0-9._-]{1,255}){0,99}$")]
    queue: String,
}

/// The queues in the path, each declared and the caller's.
pub(super) struct QueueNames(pub(super) Vec<String>);

/// The one queue in the path, declared and the caller's.
pub(super) struct QueueName(pub(super) String);

/// Refuses a name that no queue has, a queue of others, and one that the settings do not have.
fn check(api: &Api, caller: &Caller, name: &str) -> Result<(), Problem> {
    let not_found = |code, why: String| {
        Err(Problem::from(Rejection::new(code, why)).with_status(StatusCode::NOT_FOUND))
    };
    if !is_queue_name(name) {
        return not_found(
            Code::BadQueue,
            format!(
                "{} is no name of a queue: use 1 to 255 of A-Z a-z 0-9 . _ -",
                quote_address(name)
            ),
        );
    }
    // First, so that the names of others are not told.
    caller.check_queue(name)?;
    if api.inner.queues.of(name).is_none() {
        return not_found(
            Code::UnknownQueue,
            format!(
                "no [queues] of the settings fits {}: add its name or a pattern",
                quote_address(name)
            ),
        );
    }
    Ok(())
}

async fn path(parts: &mut Parts, api: &Api) -> Result<String, Problem> {
    let Path(text): Path<String> = Path::from_request_parts(parts, api)
        .await
        .map_err(|rejection| Problem::bad(rejection.body_text()))?;
    Ok(text)
}

impl FromRequestParts<Api> for QueueNames {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let names: Vec<String> = path(parts, api).await?.split(',').map(str::to_owned).collect();
        if names.len() > MAX_POP_QUEUES {
            return Err(Problem::bad(format!(
                "{} queues in one call: at most {MAX_POP_QUEUES}",
                names.len()
            )));
        }
        let caller = Caller::from_request_parts(parts, api).await?;
        names.iter().try_for_each(|name| check(api, &caller, name))?;
        Ok(QueueNames(names))
    }
}

impl FromRequestParts<Api> for QueueName {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let name = path(parts, api).await?;
        let caller = Caller::from_request_parts(parts, api).await?;
        check(api, &caller, &name)?;
        Ok(QueueName(name))
    }
}
