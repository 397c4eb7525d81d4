//! Trust roots: trusted certificate authorities, logs and timestamp authorities. The trust root of
//! the public Sigstore instance is built in. Other trust roots are parsed from text.

mod shape;

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::policy::RootId;
use bundle_core::reference::Digest;
use jiff::{SignedDuration, Timestamp};
use sigstore_verify::Verifier;
use sigstore_verify::crypto::{VerificationKey, parse_certificate_info};
use sigstore_verify::trust_root::{
    SIGSTORE_PRODUCTION_TRUSTED_ROOT, SIGSTORE_STAGING_TRUSTED_ROOT,
};

/// Maximum length of a trust root, in bytes.
pub const MAX_ROOT_BYTES: usize = 1024 * 1024;
/// Maximum number of certificates and logs of a trust root.
const MOST_PARTS: usize = 256;
/// Maximum number of parsed trust roots in the cache.
const MAX_CACHED_ROOTS: usize = 32;

/// Parsed trust root.
pub struct Root {
    id: RootId,
    pub(crate) verifier: Verifier,
    logs: Vec<Log>,
    authorities: Vec<ValidityPeriod>,
}

/// A transparency log of a root.
pub(crate) struct Log {
    /// Key hash by which entries and checkpoints identify the log.
    pub(crate) id: Vec<u8>,
    /// Key that verifies the signatures of the log.
    pub(crate) key: VerificationKey,
    /// Validity period of the key.
    pub(crate) window: ValidityPeriod,
    /// URL of the log.
    address: String,
}

impl Log {
    /// Returns `true` if `name` is the origin of the log in a checkpoint: the URL of the log
    /// without its scheme. If the URL ends with a port, the port can be missing in `name`.
    pub(crate) fn is_origin(&self, name: &str) -> bool {
        let address = self.address.split_once("://");
        let address = address.map_or(self.address.as_str(), |(_, address)| address);
        let address = address.trim_end_matches('/');
        let Some(rest) = address.strip_prefix(name) else {
            return false;
        };
        let port = rest.split('/').next().unwrap_or_default();
        let is_port = port
            .strip_prefix(':')
            .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|c| c.is_ascii_digit()));
        !name.is_empty() && (rest.is_empty() || is_port && port.len() == rest.len())
    }
}

/// Validity period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ValidityPeriod {
    from: Timestamp,
    until: Timestamp,
}

impl ValidityPeriod {
    /// Returns `true` if `time` is in the validity period, which includes its start and its end.
    pub(crate) fn holds(&self, time: Timestamp) -> bool {
        self.from <= time && time <= self.until
    }
}

impl Root {
    /// Returns the trust root of the public Sigstore instance at build time.
    pub fn public() -> Result<Arc<Self>, Finding> {
        Self::from_text(SIGSTORE_PRODUCTION_TRUSTED_ROOT)
    }

    /// Returns the text of [`Self::public`].
    pub fn public_text() -> &'static str {
        SIGSTORE_PRODUCTION_TRUSTED_ROOT
    }

    /// Returns the trust root of Sigstore's staging instance, for tests only.
    pub fn staging() -> Result<Arc<Self>, Finding> {
        Self::from_text(SIGSTORE_STAGING_TRUSTED_ROOT)
    }

    /// Returns the trust root in this text. With `None`, returns the public trust root.
    pub(crate) fn named(text: Option<&str>) -> Result<Arc<Self>, Finding> {
        text.map_or_else(Self::public, Self::from_text)
    }

    /// Parses a trust root. The last parsed trust roots are cached, because parsing is slower than
    /// verifying a signature.
    pub fn from_text(text: &str) -> Result<Arc<Self>, Finding> {
        static KNOWN: LazyLock<Mutex<VecDeque<Arc<Root>>>> = LazyLock::new(Mutex::default);
        if text.len() > MAX_ROOT_BYTES {
            return Err(unreadable("it is longer than 1 MiB"));
        }
        let id = RootId::new(Digest::of(text.as_bytes()).as_str());
        let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(root) = known().iter().find(|root| root.id == id) {
            return Ok(Arc::clone(root));
        }
        let root = Arc::new(Self::parse(id, text)?);
        let mut known = known();
        if known.len() == MAX_CACHED_ROOTS {
            known.pop_front();
        }
        known.push_back(Arc::clone(&root));
        Ok(root)
    }

    fn parse(id: RootId, text: &str) -> Result<Self, Finding> {
        let root = shape::read(text).map_err(|why| unreadable(&format!("invalid JSON: {why}")))?;
        let known = root
            .media_type
            .starts_with("application/vnd.dev.sigstore.trustedroot");
        if !known {
            return Err(unreadable("its media type is not that of a trust root"));
        }
        let certificates = root
            .certificate_authorities
            .iter()
            .map(|ca| &ca.cert_chain)
            .chain(root.timestamp_authorities.iter().map(|tsa| &tsa.cert_chain));
        let parts = certificates
            .map(|chain| chain.certificates.len())
            .sum::<usize>()
            + root.tlogs.len()
            + root.ctlogs.len();
        if parts > MOST_PARTS {
            return Err(unreadable("it has too many certificates or logs"));
        }
        if root.certificate_authorities.is_empty() || root.tlogs.is_empty() {
            return Err(unreadable(
                "it has no certificate authority or no log, so it cannot verify any signature",
            ));
        }
        let verifier = Verifier::new(&root).map_err(|error| unreadable(&error.to_string()))?;
        let range = |range: Option<sigstore_verify::types::TimeRange>| ValidityPeriod {
            from: range.map_or(Timestamp::MIN, |range| range.start),
            until: range.and_then(|range| range.end).unwrap_or(Timestamp::MAX),
        };
        let mut authorities = Vec::new();
        for authority in &root.certificate_authorities {
            let mut window = range(authority.valid_for);
            for certificate in &authority.cert_chain.certificates {
                let info = parse_certificate_info(&certificate.raw_bytes)
                    .map_err(|error| unreadable(&error.to_string()))?;
                window.from = window.from.max(info.not_before);
                window.until = window.until.min(info.not_after);
            }
            authorities.push(window);
        }
        let mut logs = Vec::new();
        for log in &root.tlogs {
            logs.push(Log {
                id: log.log_id.key_id.as_bytes().to_vec(),
                key: VerificationKey::from_spki(&log.public_key.raw_bytes)
                    .map_err(|error| unreadable(&error.to_string()))?,
                window: range(log.public_key.valid_for),
                address: log.base_url.clone(),
            });
        }
        Ok(Self {
            id,
            verifier,
            logs,
            authorities,
        })
    }

    /// Returns the sha256 of the root's text.
    pub fn id(&self) -> &RootId {
        &self.id
    }

    /// Returns the time until which new signatures can be made under this trust root. `None` means
    /// that there is no such limit.
    pub fn valid_until(&self) -> Option<Timestamp> {
        let until = self.authorities.iter().map(|window| window.until).max()?;
        let until = until.min(self.log_windows().map(|window| window.until).max()?);
        (until < Timestamp::MAX).then_some(until)
    }

    /// Returns the next time after `now` at which an authority or log of the root becomes valid or
    /// expires.
    pub fn changes_after(&self, now: Timestamp) -> Option<Timestamp> {
        let windows = self.authorities.iter().chain(self.log_windows());
        // The validity period includes its end, so the root changes immediately after the end.
        let ends =
            |window: &ValidityPeriod| window.until.saturating_add(SignedDuration::from_nanos(1));
        windows
            .flat_map(|window| [Some(window.from), ends(window).ok()])
            .flatten()
            .filter(|at| *at > now && *at < Timestamp::MAX)
            .min()
    }

    /// Returns an error if no service of the root can sign now: the root has expired, or is not
    /// valid yet.
    pub fn check(&self, now: Timestamp) -> Result<(), Finding> {
        let authority = self.authorities.iter().any(|window| window.holds(now));
        if authority && self.log_windows().any(|window| window.holds(now)) {
            return Ok(());
        }
        let when = match self.valid_until() {
            Some(until) if until < now => format!("it has expired (it was valid until {until})"),
            _ => "it is not valid yet".to_owned(),
        };
        Err(Finding::error(
            codes::trust::ROOT_EXPIRED,
            format!("the trust root ({}) is not valid: {when}", self.id),
        )
        .hint("get a current trusted_root.json from the operator of the Sigstore instance"))
    }

    fn log_windows(&self) -> impl Iterator<Item = &ValidityPeriod> {
        self.logs.iter().map(|log| &log.window)
    }

    /// Returns the log with this ID.
    pub(crate) fn log(&self, id: &[u8]) -> Option<&Log> {
        self.logs.iter().find(|log| log.id == id)
    }
}

impl fmt::Debug for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Root").field(&self.id).finish()
    }
}

fn unreadable(why: &str) -> Finding {
    let why: String = why.chars().take(300).collect();
    Finding::error(
        codes::trust::ROOT_UNREADABLE,
        format!("invalid trust root: {why}"),
    )
    .hint("a trust root is the JSON of a trusted_root.json, as `cosign trusted-root create` writes it")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const OURS: &str = include_str!("../../testdata/keyless/trusted_root.json");

    fn changed(change: impl Fn(&mut Value)) -> Result<Arc<Root>, Finding> {
        let mut root: Value = serde_json::from_str(OURS).unwrap();
        change(&mut root);
        Root::from_text(&root.to_string())
    }

    #[test]
    fn built_in_public_root_is_valid_for_years() {
        let root = Root::public().unwrap();
        root.check("2026-11-21T00:00:00Z".parse().unwrap()).unwrap();
        let end = root.valid_until().unwrap();
        let told = root.check(end + jiff::SignedDuration::from_secs(1));
        assert_eq!(told.unwrap_err().code, codes::trust::ROOT_EXPIRED);
        let before = root.check("2020-01-01T00:00:00Z".parse().unwrap());
        assert_eq!(before.unwrap_err().code, codes::trust::ROOT_EXPIRED);
        assert_eq!(Root::public().unwrap().id(), root.id());
    }

    #[test]
    fn rejects_unusable_roots() {
        changed(|_| {}).unwrap();
        for change in [
            (|root| root["certificateAuthorities"] = json!([])) as fn(&mut Value),
            |root| root["tlogs"] = json!([]),
            |root| root["mediaType"] = json!("application/json"),
            |root| root["tlogs"][0]["publicKey"]["rawBytes"] = json!("AAAA"),
            |root| {
                root["certificateAuthorities"][0]["certChain"]["certificates"][0]["rawBytes"] =
                    json!("AAAA");
            },
            |root| {
                root["certificateAuthorities"][0]["validFor"] =
                    json!({"start": "2030-01-01T00:00:00Z", "end": "2029-01-01T00:00:00Z"});
            },
        ] {
            let finding = changed(change).unwrap_err();
            assert_eq!(finding.code, codes::trust::ROOT_UNREADABLE, "{finding}");
        }
        for text in ["", "{}", "[]", &"x".repeat(MAX_ROOT_BYTES + 1)] {
            assert!(Root::from_text(text).is_err());
        }
    }

    type Change = (&'static str, fn(&mut Value));

    #[test]
    fn rejects_ambiguous_json_in_roots() {
        let whole: Value = serde_json::from_str(OURS).unwrap();
        let names = [
            "mediaType",
            "tlogs",
            "certificateAuthorities",
            "ctlogs",
            "timestampAuthorities",
        ];
        let list: Vec<Value> = names.map(|name| whole[name].clone()).to_vec();
        let mut held = Vec::new();
        if Root::from_text(&json!(list).to_string()).is_ok() {
            held.push("a list");
        }
        let changes: [Change; 7] = [
            ("a log as a list", |root| {
                let log = root["tlogs"][0].clone();
                let names = ["baseUrl", "hashAlgorithm", "publicKey", "logId"];
                root["tlogs"] = json!([names.map(|name| log[name].clone())]);
            }),
            ("a window as a list", |root| {
                root["tlogs"][0]["publicKey"]["validFor"] = json!(["2020-01-01T00:00:00Z", null]);
            }),
            ("an end in capitals", |root| {
                root["tlogs"][0]["publicKey"]["validFor"]["End"] = json!("2021-01-01T00:00:00Z");
            }),
            ("logs in capitals", |root| root["TLogs"] = json!([])),
            ("a key with a restriction that nobody knows", |root| {
                root["tlogs"][0]["publicKey"]["onlyFor"] = json!("x");
            }),
            (
                "an authority with a restriction that nobody knows",
                |root| {
                    root["certificateAuthorities"][0]["revoked"] = json!(true);
                },
            ),
            ("the names of protobuf", |root| {
                root["tlogs"][0]["public_key"] = json!({});
            }),
        ];
        for (name, change) in changes {
            if changed(change).is_ok() {
                held.push(name);
            }
        }
        let twice = OURS.replacen('{', r#"{"x":{"a":1,"a":2},"#, 1);
        if Root::from_text(&twice).is_ok() {
            held.push("a key twice in what nobody reads");
        }
        assert_eq!(held, Vec::<&str>::new());
        // Unknown fields of later versions are ignored at the top level. Within authorities and
        // logs, unknown fields are rejected.
        changed(|root| root["more"] = json!([])).unwrap();
        changed(|root| {
            root["tlogs"][0]["operator"] = json!("sigstore.dev");
            root["tlogs"][0]["checkpointKeyId"] = root["tlogs"][0]["logId"].clone();
        })
        .unwrap();
    }

    #[test]
    fn root_expires_with_its_log_key() {
        let root = changed(|root| {
            root["tlogs"][0]["publicKey"]["validFor"] =
                json!({"start": "2020-01-01T00:00:00Z", "end": "2026-12-01T00:00:00Z"});
        });
        let root = root.unwrap();
        root.check("2026-11-30T00:00:00Z".parse().unwrap()).unwrap();
        assert!(root.check("2026-12-02T00:00:00Z".parse().unwrap()).is_err());
    }
}
