//! The files of the dashboard. They are part of the binary; a debug build reads them from the
//! sources instead, so that a reload shows an edit.

use rust_embed::Embed;

/// The files under `src/http/dashboard/assets/`.
#[derive(Embed)]
#[folder = "src/http/dashboard/assets/"]
pub(super) struct Assets;

/// The text of a file of the dashboard.
pub(super) fn text_of(path: &str) -> Result<String, String> {
    let file = Assets::get(path).ok_or_else(|| format!("there is no {path}"))?;
    String::from_utf8(file.data.into_owned()).map_err(|_| format!("{path} is not UTF-8"))
}

/// `main.js` and the modules that it imports.
#[cfg(test)]
pub(super) fn scripts() -> Vec<String> {
    let ours = |path: &str| path.ends_with(".js") && !path.contains('/') && path != "early.js";
    Assets::iter().filter(|path| ours(path)).map(std::borrow::Cow::into_owned).collect()
}
