//! Checks of the registrations and their certificate authority, and the review of a test object.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bundle_core::doctor::admission::{self, ExpectedService, Probe};
use bundle_core::doctor::authority::{self, CaBundle, Certificate};
use bundle_core::doctor::{CheckResult, Observed};
use bundle_core::reference::Digest;
use bundle_core::registration::{MUTATING, VALIDATING};
use http::{Request, header};
use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::observer::Observer;
use super::shown_date;
use crate::commands::webhook::install::manifests::{DEPLOYMENT, EmbeddedManifest};

/// Maximum number of certificates of a `caBundle` that are read.
const CERTIFICATES: usize = 64;

/// Part of the message with which bundle-webhook rejects the object of [`review`]. It is a message
/// of RukPak, so it has no diagnostic code.
const REJECTION: &str = "directory must define path within the repository";

/// The two registrations in the cluster.
pub(super) struct Registrations {
    validating: Observed<Value>,
    mutating: Observed<Value>,
}

impl Registrations {
    /// Reads both registrations.
    pub(super) async fn read(observer: &Observer, manifests: &[EmbeddedManifest]) -> Self {
        let one = async |kind: &str| {
            let manifest = manifests.iter().find(|manifest| manifest.kind() == kind);
            match manifest {
                Some(manifest) => observer.read(manifest).await,
                None => Observed::Missing,
            }
        };
        let (validating, mutating) = tokio::join!(
            one("ValidatingWebhookConfiguration"),
            one("MutatingWebhookConfiguration")
        );
        Self {
            validating,
            mutating,
        }
    }

    fn both(&self) -> [&Observed<Value>; 2] {
        [&self.validating, &self.mutating]
    }

    fn found(&self) -> impl Iterator<Item = &Value> {
        self.both().into_iter().filter_map(|one| match one {
            Observed::Found(object) => Some(object),
            _ => None,
        })
    }

    /// Returns the namespace of the Service that the registrations name.
    pub(super) fn namespace(&self) -> Option<String> {
        let namespaces = self.found().filter_map(|object| {
            let client = &object["webhooks"][0]["clientConfig"];
            Some(client["service"]["namespace"].as_str()?.to_owned())
        });
        namespaces.into_iter().next()
    }

    /// Returns `true` if all registrations name a URL instead of the Service.
    pub(super) fn are_called_by_url(&self) -> bool {
        let mut found = self.found().peekable();
        found.peek().is_some() && found.all(admission::is_called_by_url)
    }

    /// Checks the content of the registrations.
    pub(super) fn check(&self, namespace: &str) -> Vec<CheckResult> {
        let service = ExpectedService {
            namespace,
            name: DEPLOYMENT,
        };
        let title = |kind: &str| format!("{kind} {DEPLOYMENT}");
        vec![
            admission::registration(
                &title("validatingwebhookconfiguration"),
                VALIDATING,
                self.validating.clone(),
                service,
            ),
            admission::registration(
                &title("mutatingwebhookconfiguration"),
                MUTATING,
                self.mutating.clone(),
                service,
            ),
            authority::authorities(self.ca_bundles(), Timestamp::now().as_second(), shown_date),
        ]
    }

    /// Returns the `caBundle` of each webhook, with the name of the webhook.
    fn ca_bundles(&self) -> Observed<Vec<(String, CaBundle)>> {
        let mut bundles = Vec::new();
        for one in self.both() {
            match one {
                Observed::Found(object) => {
                    for webhook in object["webhooks"].as_array().into_iter().flatten() {
                        let name = webhook["name"].as_str().unwrap_or_default();
                        let bundle = ca_bundle(&webhook["clientConfig"]["caBundle"]);
                        bundles.push((name.to_owned(), bundle));
                    }
                }
                Observed::Missing => {}
                Observed::Forbidden(message) => return Observed::Forbidden(message.clone()),
                Observed::Failed(message) => return Observed::Failed(message.clone()),
            }
        }
        Observed::Found(bundles)
    }
}

fn ca_bundle(field: &Value) -> CaBundle {
    let text = field.as_str().unwrap_or_default();
    if text.is_empty() {
        return CaBundle::Empty;
    }
    let Ok(pem) = STANDARD.decode(text) else {
        return CaBundle::Invalid("it is not base64".to_owned());
    };
    let mut certificates = Vec::new();
    for der in CertificateDer::pem_slice_iter(&pem).take(CERTIFICATES) {
        let Ok(der) = der else {
            return CaBundle::Invalid("it is not PEM".to_owned());
        };
        let Ok((_, certificate)) = X509Certificate::from_der(&der) else {
            return CaBundle::Invalid("it contains no valid certificate".to_owned());
        };
        certificates.push(Certificate {
            fingerprint: Digest::of(&der).as_str().to_owned(),
            not_before: certificate.validity().not_before.timestamp(),
            not_after: certificate.validity().not_after.timestamp(),
        });
    }
    CaBundle::Certificates(certificates)
}

/// Sends a dry run of a Bundle with a directory outside of its repository. bundle-webhook rejects
/// this Bundle for every requester and class.
pub(super) async fn review(observer: &Observer) -> CheckResult {
    let object = json!({
        "apiVersion": bundle_api::names::API_VERSION,
        "kind": "Bundle",
        "metadata": {"name": "doctor-probe"},
        "spec": {
            "provisionerClassName": "core-rukpak-io-plain",
            "source": {"type": "git", "git": {
                "repository": "https://git.example.com/doctor.git",
                "directory": "../outside",
                "ref": {"branch": "main"},
            }},
        },
    });
    let sent = async {
        let path = format!(
            "/apis/{}/bundles?dryRun=All",
            bundle_api::names::API_VERSION
        );
        let request = Request::post(path)
            .header(header::CONTENT_TYPE, "application/json")
            .body(object.to_string().into_bytes())
            .map_err(kube::Error::HttpError)?;
        match observer.client().request::<Value>(request).await {
            Ok(_) => Ok(Probe::Accepted),
            Err(kube::Error::Api(status)) => Ok(Probe::Rejected {
                code: status.code,
                message: status.message.clone(),
            }),
            Err(error) => Err(error),
        }
    };
    let probe = match observer.request(sent).await {
        Observed::Found(probe) => probe,
        Observed::Missing => Probe::Failed("no response".to_owned()),
        Observed::Forbidden(message) | Observed::Failed(message) => Probe::Failed(message),
    };
    admission::review(probe, REJECTION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_ca_bundles_are_named() {
        let of = |text: &str| ca_bundle(&json!(text));
        let encoded = |text: &str| of(&STANDARD.encode(text));
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for (found, expected) in [
            (of(""), CaBundle::Empty),
            (ca_bundle(&Value::Null), CaBundle::Empty),
            (of("!"), CaBundle::Invalid("it is not base64".to_owned())),
            (
                encoded(broken),
                CaBundle::Invalid("it contains no valid certificate".to_owned()),
            ),
            (encoded("text"), CaBundle::Certificates(Vec::new())),
        ] {
            assert_eq!(found, expected);
        }
    }
}
