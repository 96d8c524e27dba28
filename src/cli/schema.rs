//! `dwell schema`: the JSON Schema of the settings file, for editors.

use super::common::{Common, Form, line};
use super::exit::{Exit, Stop};
use crate::config;

/// `dwell schema`
#[derive(Debug, clap::Args)]
pub struct Args {}

pub(super) fn run(common: &Common) -> Result<Exit, Stop> {
    let schema = config::schema();
    line(&match common.output {
        Form::Text => format!("{schema:#}"),
        Form::Json => schema.to_string(),
    })?;
    Ok(Exit::Ok)
}
