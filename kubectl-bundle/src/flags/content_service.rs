//! Flags for the content service of bundle-webhook, which receives uploads and serves downloads.

use std::path::PathBuf;

use bundle_api::ServiceAccountName;
use bundle_core::names::{KubeName, NameKind};
use clap::Args;
use url::Url;

use super::invalid_flag;
use crate::cluster::content::ContentServiceSettings;
use crate::failure::Outcome;

/// Flags for the content service.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Content service options")]
pub(crate) struct ContentServiceFlags {
    /// Act as this ServiceAccount, with a requested token. Needed if the kubeconfig has a client
    /// certificate, because bundle-webhook accepts only tokens
    #[arg(long, value_name = "NAMESPACE/NAME")]
    pub(crate) as_service_account: Option<String>,
    /// URL of the content service of bundle-webhook, for a direct connection [default: its pods,
    /// through the API server]
    #[arg(long, value_name = "URL")]
    pub(crate) content_url: Option<String>,
    /// File with the certificate authority of the content service, in PEM format [default: caBundle
    /// of the webhook registration]
    #[arg(long, value_name = "FILE")]
    pub(crate) content_ca: Option<PathBuf>,
    /// Namespace of the pods [default: the namespace in the webhook registration]
    #[arg(long, value_name = "NAME")]
    pub(crate) system_namespace: Option<String>,
}

impl ContentServiceFlags {
    /// Returns the settings, and the ServiceAccount to act as.
    pub(crate) fn settings(self) -> Outcome<(ContentServiceSettings, Option<ServiceAccountName>)> {
        let account = self.as_service_account.as_deref();
        let account = account.map(|text| service_account("--as-service-account", text, None));
        let namespace = self.system_namespace.as_deref().map(|text| {
            KubeName::parse(NameKind::Label, text)
                .map_err(|why| invalid_flag("--system-namespace", &why.to_string()))
        });
        let settings = ContentServiceSettings {
            url: self.content_url.as_deref().map(url).transpose()?,
            authorities: self.content_ca,
            system_namespace: namespace.transpose()?,
        };
        Ok((settings, account.transpose()?))
    }
}

/// Parses the value of `--content-url`.
fn url(text: &str) -> Outcome<Url> {
    let invalid = |why: &str| {
        invalid_flag("--content-url", &format!("`{}` {why}", text.escape_debug())).hint(
            "write https://HOST[:PORT], such as https://bundles.example.com; /bundles/NAME.tgz is appended",
        )
    };
    let url = Url::parse(text).map_err(|_| invalid("is not a URL"))?;
    if url.scheme() != "https" {
        return Err(invalid("has no TLS, but the token is secret").into());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(invalid("has credentials").into());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(invalid("has more than a path").into());
    }
    Ok(url)
}

/// Parses `NAMESPACE/NAME`, or a name in `namespace`.
pub(crate) fn service_account(
    flag: &str,
    text: &str,
    namespace: Option<&str>,
) -> Outcome<ServiceAccountName> {
    let (namespace, name) = match text.split_once('/') {
        Some((namespace, name)) => (namespace, name),
        None => (namespace.unwrap_or_default(), text),
    };
    if namespace.is_empty() || name.is_empty() || name.contains('/') {
        let invalid = invalid_flag(flag, &format!("`{text}` is not a valid ServiceAccount"));
        let hint = if flag == "--service-account" {
            "write NAMESPACE/NAME, such as team-a/deployer, or set the namespace with -n"
        } else {
            "write NAMESPACE/NAME, such as team-a/deployer"
        };
        return Err(invalid.hint(hint).into());
    }
    Ok(ServiceAccountName {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    })
}
