//! The listeners and their callers: `[http]`, `[compat]`, `[probes]`.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::Resolver;
use crate::config::{Compat, Http, Probes, Secret, Token, layers, rules, secret};

/// The hint where the file of a token cannot be read.
const TOKEN_HINT: &str = "name a file that holds the token";

impl Resolver<'_> {
    pub(super) fn listeners(&mut self) -> (Http, Compat, Probes) {
        let mut http = self.read::<Http>(&["http"]);
        let compat = self.read::<Compat>(&["compat"]);
        let probes = self.read::<Probes>(&["probes"]);
        let mut master = None;
        if let Some(file) = http.token_file.as_deref() {
            let read = secret::read(file).map_err(|message| (message, TOKEN_HINT.to_owned()));
            master = self.check("http.token_file", read).map(Secret::new);
        }
        let has_token = http.token_file.is_some() || !http.tokens.is_empty();
        self.tokens(&mut http.tokens, master.as_ref());

        let mut taken: Vec<(&str, SocketAddr)> = Vec::new();
        for (key, text) in [
            ("http.listen", http.listen.as_str()),
            ("compat.delay_queue", compat.delay_queue.as_deref().unwrap_or_default()),
            ("compat.lmstfy", compat.lmstfy.as_deref().unwrap_or_default()),
            ("probes.listen", probes.listen.as_str()),
        ] {
            if text.is_empty() && key.starts_with("compat.") {
                continue;
            }
            let Some(address) = self.check(key, rules::listen(text)) else { continue };
            if key != "probes.listen" && !has_token && !address.ip().is_loopback() {
                let wrong =
                    format!("`{address}` is reachable from other hosts, and there is no token");
                let hint = format!(
                    "listen on 127.0.0.1:{}, or set http.token_file or [http.tokens.NAME]",
                    address.port()
                );
                self.note(key, (wrong, hint));
            }
            if let Some((other, _)) =
                taken.iter().find(|(_, other)| address.port() != 0 && *other == address)
            {
                self.note(
                    key,
                    (format!("{other} is the same address"), "choose another port".to_owned()),
                );
            }
            taken.push((key, address));
        }
        (http, compat, probes)
    }

    /// Reads the tokens of applications. `master`: the token of `http.token_file`.
    fn tokens(&mut self, tokens: &mut BTreeMap<String, Token>, master: Option<&Secret>) {
        let mut others: Vec<(String, Secret)> = Vec::new();
        for (name, token) in tokens {
            let path = ["http", "tokens", name.as_str()];
            let at = |key| [path[0], path[1], path[2], key];
            self.check_at(&path, rules::name(name));
            if token.may.is_empty() && !self.is_told(&layers::key(&at("may"))) {
                self.note_at(
                    &at("may"),
                    (
                        "this token may do nothing".to_owned(),
                        "write some of schedule, consume, read, act".to_owned(),
                    ),
                );
            }
            if token.queues.is_empty() {
                let wrong = "this token has no queue".to_owned();
                self.note_at(
                    &at("queues"),
                    (wrong, "name its queues, or write [\"*\"] for all of them".to_owned()),
                );
            }
            for pattern in &token.queues {
                self.check_at(&at("queues"), rules::queue(pattern));
            }
            let Some(secret) = self.token_secret(name, token) else { continue };
            let same = others
                .iter()
                .find(|(_, other)| *other == secret)
                .map(|(other, _)| format!("http.tokens.{other}"));
            if let Some(other) =
                same.or_else(|| (master == Some(&secret)).then(|| "http.token_file".to_owned()))
            {
                self.note_at(
                    &path,
                    (format!("{other} is the same token"), "give each its own".to_owned()),
                );
            }
            others.push((name.clone(), secret.clone()));
            token.token = Some(secret);
        }
    }

    fn token_secret(&mut self, name: &str, token: &Token) -> Option<Secret> {
        let path = ["http", "tokens", name];
        let read = match (&token.token, &token.token_file) {
            (Some(_), Some(_)) => {
                return self.check_at(
                    &path,
                    rules::wrong("`token` and `token_file` are both set", "remove one of them"),
                );
            }
            (None, None) => {
                return self.check_at(&path, rules::wrong("there is no token", "set token_file"));
            }
            (Some(token), None) => {
                rules::address(token.expose()).map(|()| token.expose().to_owned())
            }
            (None, Some(file)) => {
                secret::read(file).map_err(|message| (message, TOKEN_HINT.to_owned()))
            }
        };
        let key = if token.token.is_some() { "token" } else { "token_file" };
        self.check_at(&[path[0], path[1], path[2], key], read).map(Secret::new)
    }
}
