//! Signatures of requests, as Standard Webhooks has them: a receiver sees who sent a request, and
//! that nobody changed the body.

use std::fmt;

use base64::Engine;
use base64::alphabet;
use base64::engine::general_purpose::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use ring::hmac::{Context, HMAC_SHA256, Key};

/// The most secrets: the new one and the old one of a rotation.
const MAX_SECRETS: usize = 2;

/// Padding and the bits left over at the end do not matter, as in the libraries of receivers.
const LENIENT_BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// The secrets that requests are signed with.
#[derive(Clone)]
pub(super) struct Secrets(Vec<Key>);

impl Secrets {
    /// The secrets in the text of their file, one a line. A secret is base64, with or without
    /// `whsec_` before it: the libraries of receivers decode both. `Err`: what is wrong, without
    /// the secret.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let lines = text
            .lines()
            .enumerate()
            .map(|(at, line)| (at + 1, line.trim()))
            .filter(|(_, line)| !line.is_empty());
        let keys = lines
            .map(|(number, line)| key(line).map_err(|why| format!("line {number} {why}")))
            .collect::<Result<Vec<_>, _>>()?;
        match keys.len() {
            0 => Err("no secret in the file: write one, as in `whsec_` and 24 to 64 random bytes in base64".to_owned()),
            1..=MAX_SECRETS => Ok(Secrets(keys)),
            many => Err(format!("{many} secrets in the file: keep {MAX_SECRETS} at most, the new one and the old one")),
        }
    }

    /// The value of `webhook-signature`: a signature with each secret, so that a receiver may know
    /// either of them.
    pub(super) fn sign(&self, id: &str, timestamp_s: u64, body: &[u8]) -> String {
        let head = format!("{id}.{timestamp_s}.");
        let signature = |key: &Key| {
            let mut context = Context::with_key(key);
            context.update(head.as_bytes());
            context.update(body);
            format!("v1,{}", STANDARD.encode(context.sign()))
        };
        self.0.iter().map(signature).collect::<Vec<_>>().join(" ")
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The key of a secret; or what is wrong with the secret.
fn key(secret: &str) -> Result<Key, &'static str> {
    if secret.starts_with("whsk_") || secret.starts_with("whpk_") {
        return Err(
            "is an ed25519 key, which nothing is signed with here: write a secret that starts with `whsec_`",
        );
    }
    let secret = secret.strip_prefix("whsec_").unwrap_or(secret);
    match LENIENT_BASE64.decode(secret) {
        Ok(bytes) if bytes.is_empty() => Err("is an empty secret: write base64 after `whsec_`"),
        Ok(bytes) => Ok(Key::new(HMAC_SHA256, &bytes)),
        Err(_) => {
            Err("is not base64, as a secret of Standard Webhooks is: encode the secret, one a line")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST_SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";
    const OTHER_SECRET: &str = "whsec_yMnKy8zNzs/Q0dLT1NXW19jZ2tvc3d7f4OHi4+Tl5uc=";

    fn signed(secrets: &str, id: &str, timestamp_s: u64, body: &[u8]) -> String {
        Secrets::parse(secrets).unwrap().sign(id, timestamp_s, body)
    }

    #[test]
    fn signatures_are_those_of_the_standard() {
        // The vector that the libraries of Standard Webhooks test themselves with.
        let body = br#"{"email":"test@example.com","username":"test_user"}"#;
        assert_eq!(
            signed(
                "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD",
                "msg_27UH4WbU6Z5A5EzD8u03UvzRbpk",
                1_649_367_553,
                body
            ),
            "v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw="
        );
        // Computed with OpenSSL: `openssl dgst -sha256 -mac HMAC -macopt hexkey:000102…17 -binary`.
        assert_eq!(
            signed(FIRST_SECRET, "job-7", 1_735_689_600, b"\x00\xff\r\n"),
            "v1,Cag0lB/QtzCnf57LsOCmrVw53Hn1+j/Ihi6Wkxur7m8="
        );
        // Computed with Python's hmac.
        assert_eq!(
            signed(FIRST_SECRET, "job-7", 1_735_689_600, b""),
            "v1,9Rg+yY1poi0Y0jY2NYn+BfgV5gwuWxbOJtpQrNFTjm8="
        );
    }

    #[test]
    fn two_secrets_make_two_signatures_in_the_order_of_the_lines() {
        let (one, other) = (signed(FIRST_SECRET, "a", 1, b"x"), signed(OTHER_SECRET, "a", 1, b"x"));
        assert_ne!(one, other);
        assert_eq!(
            signed(&format!("{FIRST_SECRET}\n{OTHER_SECRET}"), "a", 1, b"x"),
            format!("{one} {other}")
        );
        assert_eq!(
            signed(&format!("\n  {OTHER_SECRET}\t\r\n\r\n \n{FIRST_SECRET}  \n\n"), "a", 1, b"x"),
            format!("{other} {one}")
        );
    }

    #[test]
    fn each_part_is_signed() {
        let signature = signed(FIRST_SECRET, "a", 1, b"x");
        for (id, timestamp_s, body) in [("b", 1, b"x"), ("a", 2, b"x"), ("a", 1, b"y")] {
            assert_ne!(signed(FIRST_SECRET, id, timestamp_s, body), signature);
        }
    }

    #[test]
    fn prefix_and_padding_do_not_matter() {
        let signature = signed(OTHER_SECRET, "a", 1, b"x");
        let bare = OTHER_SECRET.trim_start_matches("whsec_");
        for secret in [bare, bare.trim_end_matches('='), OTHER_SECRET.trim_end_matches('=')] {
            assert_eq!(signed(secret, "a", 1, b"x"), signature);
        }
    }

    #[test]
    fn a_wrong_file_is_refused_without_showing_a_secret() {
        let three = [FIRST_SECRET, OTHER_SECRET, FIRST_SECRET].join("\n");
        for (text, word) in [
            ("", "no secret"),
            (" \r\n\t\n", "no secret"),
            ("whsec_", "line 1 is an empty secret"),
            ("\n\nhush!hush", "line 3 is not base64"),
            ("whsec_hush-hush_hush", "line 1 is not base64"),
            ("whsec_hush hush", "line 1 is not base64"),
            ("whsec_hushh", "line 1 is not base64"),
            ("WHSEC_hush", "line 1 is not base64"),
            ("whsk_hushhush", "line 1 is an ed25519 key"),
            ("whpk_hushhush", "line 1 is an ed25519 key"),
            (&three, "3 secrets"),
        ] {
            let why = Secrets::parse(text).unwrap_err();
            assert!(
                why.contains(word)
                    && why.contains(": ")
                    && !why.contains("hush")
                    && !why.contains("AAEC"),
                "{why}"
            );
        }
        assert_eq!(format!("{:?}", Secrets::parse(FIRST_SECRET).unwrap()), "***");
    }
}
