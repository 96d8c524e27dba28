//! The calls of `/v1`.

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::schedules;
use super::state::Api;
use super::{actions, events, horizon, jobs, leases, new_jobs, pop, queues, stats};

/// The calls of `/v1` and their documentation.
pub(in crate::http) fn calls() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(jobs::list, new_jobs::schedule))
        .routes(routes!(jobs::show, actions::cancel, actions::reschedule))
        .routes(routes!(actions::fire))
        .routes(routes!(actions::finish))
        .routes(routes!(actions::fail))
        .routes(routes!(actions::requeue))
        .routes(routes!(schedules::list::list))
        .routes(routes!(schedules::preview::preview))
        .routes(routes!(schedules::many::pause))
        .routes(routes!(schedules::many::resume))
        .routes(routes!(schedules::show::show, schedules::put::put, schedules::actions::cancel))
        .routes(routes!(schedules::actions::fire))
        .routes(routes!(schedules::actions::pause))
        .routes(routes!(schedules::actions::resume))
        .routes(routes!(pop::pop))
        .routes(routes!(leases::leases))
        .routes(routes!(queues::list))
        .routes(routes!(queues::show))
        .routes(routes!(queues::peek))
        .routes(routes!(queues::pause))
        .routes(routes!(queues::resume))
        .routes(routes!(queues::purge))
        .routes(routes!(stats::stats))
        .routes(routes!(horizon::horizon))
        .routes(routes!(events::events))
}
