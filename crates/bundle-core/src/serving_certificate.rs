//! Certificates of the webhooks of operators: the objects that need a certificate, and the periods
//! after which a certificate is renewed. The content has neither certificates nor keys. The pod
//! creates the certificates and keys, and writes them into the objects that it applies.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bundle_api::names as api;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::object::{self, Manifest};

/// Key of the certificate in `data` of a Secret.
pub const CERTIFICATE: &str = "tls.crt";
/// Key of the certificate's private key in `data` of a Secret.
pub const KEY: &str = "tls.key";

const DAY: u64 = 24 * 60 * 60;
/// Length of a period, in seconds. Each period has a certificate and an authority of its own.
const PERIOD: u64 = 60 * DAY;
/// Time by which certificates are backdated, for API servers whose clock is behind.
const SKEW: u64 = DAY;

/// Service of an operator's webhooks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct WebhookService {
    /// Namespace of the Service.
    pub namespace: String,
    /// Name of the Service.
    pub name: String,
}

impl WebhookService {
    /// Returns the DNS names of the Service. The API server uses the first name in requests.
    pub fn dns_names(&self) -> [String; 2] {
        let Self { namespace, name } = self;
        [
            format!("{name}.{namespace}.svc"),
            format!("{name}.{namespace}"),
        ]
    }
}

/// Certificate of a Service, as PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct ServingCertificate {
    /// Certificate with the DNS names of the Service.
    pub certificate: String,
    /// Private key, as PKCS#8.
    pub key: String,
    /// CA certificates of the former, the current and the next certificate. API servers get the CA
    /// certificate of the next certificate early, so that they trust this certificate when the
    /// webhook begins to serve it.
    pub authorities: String,
}

/// Period of a certificate. The periods of different deployments begin at different times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CertificatePeriod {
    number: u64,
    offset: u64,
}

impl CertificatePeriod {
    /// Returns the period of the BundleDeployment with this uid at `now`, in seconds since 1970.
    pub fn at(now: u64, uid: &str) -> Self {
        let hash = Sha256::digest(uid);
        let offset = hash
            .iter()
            .take(7)
            .fold(0, |sum: u64, byte| (sum << 8 | u64::from(*byte)) % PERIOD);
        Self {
            number: now.saturating_add(offset) / PERIOD,
            offset,
        }
    }

    /// Returns the number of the period.
    pub fn number(self) -> u64 {
        self.number
    }

    /// Returns a text that consists of the period and `key_id`. All certificates of a
    /// BundleDeployment must be issued again if this text changes. `key_id` identifies the key that
    /// the private keys are derived from.
    pub fn version(self, key_id: &str) -> String {
        format!("{} {key_id}", self.number)
    }

    /// Returns the previous period, this period and the next period.
    pub fn neighbours(self) -> [Self; 3] {
        let with = |number| Self { number, ..self };
        [
            with(self.number.saturating_sub(1)),
            self,
            with(self.number.saturating_add(1)),
        ]
    }

    fn start(self) -> u64 {
        (self.number.saturating_mul(PERIOD)).saturating_sub(self.offset)
    }

    /// Returns the end of the period, in seconds since 1970.
    pub fn end(self) -> u64 {
        self.start().saturating_add(PERIOD)
    }

    /// Returns the beginning of the validity of the certificates of this period, in seconds since
    /// 1970.
    pub fn not_before(self) -> u64 {
        self.start().saturating_sub(SKEW)
    }

    /// Returns the end of the validity of the certificates of this period, in seconds since 1970.
    /// The certificates are valid for one period after their replacement.
    pub fn not_after(self) -> u64 {
        self.end().saturating_add(PERIOD)
    }
}

/// Returns the Service whose certificate or CA certificates the object must contain. Returns `None`
/// if the object needs neither.
pub fn service(object: &Manifest) -> Option<WebhookService> {
    let annotation = |key: &str| object.value["metadata"]["annotations"][key].as_str();
    let (namespace, name) = match (object.id.group.as_str(), object.id.kind.as_str()) {
        ("", "Secret") => (
            object.id.namespace.as_deref()?,
            annotation(api::ANNOTATION_SERVING_CERTIFICATE)?,
        ),
        (
            "admissionregistration.k8s.io",
            "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration",
        )
        | ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            annotation(api::ANNOTATION_INJECT_AUTHORITY)?.split_once('/')?
        }
        _ => return None,
    };
    let is_valid = object::is_dns_label(namespace) && object::is_dns_label(name);
    is_valid.then(|| WebhookService {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    })
}

/// Writes the certificate and private key into a Secret. Writes the CA certificates (`caBundle`)
/// into a CustomResourceDefinition or webhook configuration.
pub fn write(object: &mut Value, issued: &ServingCertificate) {
    let encoded = |text: &str| Value::String(STANDARD.encode(text));
    match object["kind"].as_str() {
        Some("Secret") => {
            let secret = json!({
                CERTIFICATE: encoded(&issued.certificate),
                KEY: encoded(&issued.key),
            });
            if let Value::Object(object) = object {
                object.insert("data".to_owned(), secret);
                object.remove("stringData");
            }
        }
        Some("CustomResourceDefinition") => {
            let client = object.pointer_mut("/spec/conversion/webhook/clientConfig");
            if let Some(Value::Object(client)) = client {
                client.insert("caBundle".to_owned(), encoded(&issued.authorities));
            }
        }
        _ => {
            let webhooks = object.get_mut("webhooks").and_then(Value::as_array_mut);
            for webhook in webhooks.into_iter().flatten() {
                if let Some(Value::Object(client)) = webhook.get_mut("clientConfig") {
                    client.insert("caBundle".to_owned(), encoded(&issued.authorities));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{diagnostic::Findings, yaml};

    fn object(text: &str) -> Manifest {
        let mut documents = yaml::documents(text.as_bytes(), "a.yaml").unwrap();
        let mut findings = Findings::default();
        object::read(documents.pop().unwrap(), "a.yaml", &mut findings).unwrap()
    }

    fn issued() -> ServingCertificate {
        ServingCertificate {
            certificate: "crt".to_owned(),
            key: "key".to_owned(),
            authorities: "cas".to_owned(),
        }
    }

    #[test]
    fn certificates_belong_into_annotated_secrets_and_authorities_into_webhooks() {
        let encoded = |text: &str| json!(STANDARD.encode(text));
        for (text, pointer, expected) in [
            (
                "{apiVersion: v1, kind: Secret, metadata: {name: a, namespace: ns, annotations: {core.rukpak.io/serving-certificate: hook}}, data: {tls.crt: ''}}",
                "/data/tls.key",
                "key",
            ),
            (
                "{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration, metadata: {name: a, annotations: {core.rukpak.io/inject-authority: ns/hook}}, webhooks: [{}, {clientConfig: {}}]}",
                "/webhooks/1/clientConfig/caBundle",
                "cas",
            ),
            (
                "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: a, annotations: {core.rukpak.io/inject-authority: ns/hook}}, spec: {conversion: {webhook: {clientConfig: {}}}}}",
                "/spec/conversion/webhook/clientConfig/caBundle",
                "cas",
            ),
        ] {
            let mut object = object(text);
            let service = service(&object).unwrap();
            assert_eq!(service.dns_names(), ["hook.ns.svc", "hook.ns"]);
            write(&mut object.value, &issued());
            assert_eq!(object.value.pointer(pointer), Some(&encoded(expected)));
        }
    }

    #[test]
    fn other_objects_and_invalid_names_get_no_certificate() {
        for text in [
            "{apiVersion: v1, kind: Secret, metadata: {name: a, namespace: ns}}",
            "{apiVersion: v1, kind: Secret, metadata: {name: a, namespace: ns, annotations: {core.rukpak.io/serving-certificate: a/b}}}",
            "{apiVersion: v1, kind: Secret, metadata: {name: a, annotations: {core.rukpak.io/serving-certificate: hook}}}",
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: ns, annotations: {core.rukpak.io/serving-certificate: hook}}}",
            "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: a, annotations: {core.rukpak.io/inject-authority: hook}}}",
        ] {
            assert_eq!(service(&object(text)), None, "{text}");
        }
    }

    #[test]
    fn each_certificate_is_valid_for_one_period_after_it_is_replaced() {
        let now = 1_800_000_000;
        let period = CertificatePeriod::at(now, "uid");
        assert!(period.not_before() < now && now < period.end());
        assert_eq!(period.not_after(), period.end() + PERIOD);
        let next = CertificatePeriod::at(period.end(), "uid");
        let [former, this, _] = next.neighbours();
        assert_eq!((former, this), (period, next));
        assert_eq!(next.number(), period.number() + 1);
        assert_eq!(CertificatePeriod::at(period.end() - 1, "uid"), period);
        let other = CertificatePeriod::at(now, "other");
        assert_ne!(other.end(), period.end());
    }

    #[test]
    fn certificates_are_issued_again_in_each_period_and_for_another_key() {
        let period = CertificatePeriod::at(1_800_000_000, "uid");
        let (start, version) = (period.start(), period.version("key"));
        // Columns: time, identifier of the key, `true` if the certificates stay the same, remaining
        // validity of the certificate that is served at this time.
        for (now, key, is_same, remaining) in [
            (start - 1, "key", false, PERIOD + 1),
            (start, "key", true, 2 * PERIOD),
            (start + PERIOD / 2, "key", true, PERIOD + PERIOD / 2),
            (period.end() - 1, "key", true, PERIOD + 1),
            (period.end(), "key", false, 2 * PERIOD),
            (start, "other", false, 2 * PERIOD),
        ] {
            let at = CertificatePeriod::at(now, "uid");
            assert_eq!(at.version(key) == version, is_same, "{now} {key}");
            assert_eq!(at.not_after() - now, remaining, "{now} {key}");
            assert!(at.not_before() + SKEW <= now, "{now} {key}");
        }
        // If the clock goes back, the pod issues the former certificate. API servers still trust
        // this certificate.
        let [former, _, next] = period.neighbours();
        assert_eq!(CertificatePeriod::at(start - 1, "uid"), former);
        assert_eq!(CertificatePeriod::at(period.end(), "uid"), next);
    }
}
