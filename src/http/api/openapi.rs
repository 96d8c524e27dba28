//! `GET /openapi.json`: the calls, described by their code. A copy is in
//! docs/reference/openapi.json.

use std::sync::LazyLock;

use axum::http::header;
use axum::response::{IntoResponse, Response};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{ContentBuilder, Info, License, OpenApi, Ref, RefOr, ResponseBuilder, Tag};
use utoipa::{PartialSchema, ToSchema};

use super::routes;
use crate::http::server::Problem;

static DOCUMENT: LazyLock<String> = LazyLock::new(text);

pub(in crate::http) async fn document() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT.as_str()).into_response()
}

/// The document as JSON.
#[must_use]
pub fn text() -> String {
    let mut text = serde_json::to_string_pretty(&api())
        .expect("a document of text and numbers can be written as JSON");
    text.push('\n');
    text
}

fn api() -> OpenApi {
    let mut api = routes::calls().to_openapi();
    api.info = Info::new("Dwell", env!("CARGO_PKG_VERSION"));
    api.info.description = Some(
        "Delayed delivery for Kafka, RabbitMQ and NATS JetStream, and delay queues without a broker: the jobs of a namespace.".to_owned(),
    );
    let mut license = License::new("Apache-2.0");
    license.identifier = Some("Apache-2.0".to_owned());
    api.info.license = Some(license);
    api.tags =
        Some(vec![Tag::new("jobs"), Tag::new("schedules"), Tag::new("queues"), Tag::new("state")]);
    let bearer = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
    let components = api.components.get_or_insert_default();
    components.security_schemes.insert("token".to_owned(), RefOr::T(bearer));
    components.schemas.insert(Problem::name().into_owned(), Problem::schema());
    let none: [&str; 0] = [];
    api.security =
        Some(vec![SecurityRequirement::default(), SecurityRequirement::new("token", none)]);
    for item in api.paths.paths.values_mut() {
        let operations =
            [&mut item.get, &mut item.post, &mut item.put, &mut item.patch, &mut item.delete];
        for operation in operations.into_iter().flatten() {
            for (status, description) in [
                ("400", "The request is not valid; `code` names the violated rule of requests"),
                ("401", "The token is missing or wrong"),
                ("403", "`forbidden`: the token does not allow the call"),
                ("503", "Redis is unreachable or full"),
                ("default", "Another problem"),
            ] {
                operation.responses.responses.entry(status.to_owned()).or_insert_with(|| {
                    let content = ContentBuilder::new()
                        .schema(Some(Ref::from_schema_name(Problem::name())))
                        .build();
                    RefOr::T(
                        ResponseBuilder::new()
                            .description(description)
                            .content("application/problem+json", content)
                            .build(),
                    )
                });
            }
        }
    }
    api
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn the_copy_in_docs_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/reference/openapi.json");
        if std::env::var_os("DWELL_WRITE_OPENAPI").is_some() {
            std::fs::write(path, text()).unwrap();
        }
        assert!(
            std::fs::read_to_string(path).unwrap() == text(),
            "docs/reference/openapi.json differs from the code: run `make openapi`"
        );
    }
}
