//! Messages about certificates that are rejected, and about registries that reject an incomplete
//! index. `cargo xtask gen` copies `messages.txt` to the page about diagnostics.

use std::sync::Arc;

use bundle_core::diagnostic::rendered;
use reqwest::dns::{Name, Resolve, Resolving};
use rustls::CertificateError;

use super::SkippedManifest;
use super::send::sparse_index;
use crate::manifest::{Descriptor, Platform};
use crate::media;
use crate::registry::{HttpError, RegistryError, RegistryErrorReason};

const RECORDED: &str = include_str!("messages.txt");

/// Name resolver that returns a TLS error, so that a request fails without a connection.
struct UnknownAuthority;

impl Resolve for UnknownAuthority {
    fn resolve(&self, _: Name) -> Resolving {
        Box::pin(async { Err(rustls::Error::from(CertificateError::UnknownIssuer).into()) })
    }
}

/// Returns the error of the HTTP client for a certificate of an unknown authority.
async fn unknown_authority() -> HttpError {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let client = reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only([])
        .dns_resolver(Arc::new(UnknownAuthority))
        .build();
    let request = client.unwrap().get("https://registry.example.com/v2/");
    request.send().await.unwrap_err().into()
}

fn failed(doing: &'static str, reason: RegistryErrorReason) -> RegistryError {
    RegistryError {
        doing,
        subject: "registry.example.com/team/web:1.4.0".to_owned(),
        reason,
    }
}

#[tokio::test]
async fn messages_of_registry_errors_are_recorded() {
    let registry = || "registry.example.com".to_owned();
    let certificate = RegistryErrorReason::Certificate {
        registry: registry(),
        source: unknown_authority().await,
    };
    let client_certificate = RegistryErrorReason::ClientCertificate {
        registry: registry(),
        given: false,
    };
    let refused = RegistryErrorReason::Refused {
        status: 400,
        detail: ": manifest blob unknown to registry".to_owned(),
    };
    let platform: Platform = "linux/arm64".parse().unwrap();
    let skipped = SkippedManifest {
        descriptor: Descriptor {
            platform: Some(platform),
            ..Descriptor::of(media::MANIFEST, b"{}")
        },
        is_excluded_by_selection: true,
    };
    let findings = [
        failed("read the manifest of", certificate).finding(),
        failed("read the manifest of", client_certificate).finding(),
        sparse_index(&failed("write the manifest of", refused), &[skipped]),
    ];
    let text = rendered(&findings);
    assert_eq!(text, RECORDED, "copy the left side to messages.txt");
}
