//! Parser of `ProvisionerClass`: the provisioner of a class, and the rules for content of the
//! class.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use super::{deployment::service_account, fields::Field, source::Source};
use crate::{
    diagnostic::{Finding, Findings, codes},
    names::{KubeName, NameKind},
    package::Format,
    policy::ClassSignatures,
    service_account::ServiceAccount,
};

/// Maximum number of pull secrets of a class.
const MAX_PULL_SECRETS: usize = 16;

/// Validated class, with defaults.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Class {
    /// Name of the class.
    pub name: String,
    /// Uid on the cluster. The text is empty if only the spec was parsed.
    pub uid: String,
    /// Provisioner of the class.
    pub provisioner: Provisioner,
    /// Parameters of the provisioner.
    pub parameters: BTreeMap<String, String>,
    /// ServiceAccount that installs content, unless a BundleDeployment names another
    /// ServiceAccount. `None` if the class names no ServiceAccount.
    pub service_account: Option<ServiceAccount>,
    /// User whose permissions the content needs: the requester, or the ServiceAccount of the class.
    pub authorization: Authorization,
    /// Check of the requester's permissions, for [`Authorization::Requester`].
    pub requester_check: RequesterCheck,
    /// Required approval of content.
    pub approval: Approval,
    /// Signatures that the class requires.
    pub signatures: ClassSignatures,
    /// Allowed source types; `None` allows all types.
    pub source_types: Option<Vec<String>>,
    /// Allowed hosts of sources; `None` allows all hosts.
    pub source_hosts: Option<Vec<String>>,
    /// `true` if git and http sources may use private addresses.
    pub private_addresses: bool,
    /// Hosts that may be used without verified TLS.
    pub insecure_hosts: Vec<String>,
    /// Pull secrets in the system namespace, for images whose source names no pull secret.
    pub pull_secrets: Vec<KubeName>,
    /// Patterns of allowed namespaces of content.
    pub namespaces: Vec<String>,
    /// `true` if content may contain cluster-scoped objects.
    pub cluster_scoped: bool,
}

/// Provisioner of a class.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Provisioner {
    /// Provisioner of this project for plain manifests.
    Plain,
    /// Provisioner of this project for registry+v1 bundles.
    Registry,
    /// Provisioner of this project for charts.
    Helm,
    /// Provisioner of another program.
    Foreign(String),
}

impl fmt::Display for Provisioner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "core.rukpak.io/plain",
            Self::Registry => "core.rukpak.io/registry",
            Self::Helm => "core.rukpak.io/helm",
            Self::Foreign(name) => name,
        })
    }
}

/// User whose permissions the content needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Authorization {
    /// Permissions of the requester, for every object.
    Requester,
    /// Permissions of the ServiceAccount of the class. The requester needs only verb `use`.
    Class,
}

/// Check of the requester's permissions for the objects of the content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RequesterCheck {
    /// Access reviews, and a dry run of each object as the requester.
    DryRun,
    /// Access reviews only.
    AccessReview,
}

/// Required approval of content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Approval {
    /// No approval is required.
    None,
    /// Approval by anyone with verb `approve` on the class.
    ByAnyone,
    /// Approval by anyone with verb `approve` on the class, except the requester.
    ByAnotherPerson,
}

impl Class {
    /// Parses `spec` of the ProvisionerClass `name`.
    pub fn parse(name: &str, spec: &Value) -> Result<Self, Findings> {
        let mut findings = Findings::default();
        let f = &mut findings;
        let field = Field::new(spec, "spec");
        let provisioner = match field.get("provisioner").required(f).unwrap_or_default() {
            "core.rukpak.io/plain" => Provisioner::Plain,
            "core.rukpak.io/registry" => Provisioner::Registry,
            "core.rukpak.io/helm" => Provisioner::Helm,
            other => Provisioner::Foreign(other.to_owned()),
        };
        let approval = field.get("approval");
        let required =
            approval
                .get("mode")
                .choice(f, false, &[("None", false), ("Required", true)]);
        let another =
            approval
                .get("by")
                .choice(f, false, &[("Anyone", false), ("AnotherPerson", true)]);
        let (sources, targets) = (field.get("sources"), field.get("targets"));
        for object in [&approval, &sources, &targets] {
            object.object(f);
        }
        if !matches!(provisioner, Provisioner::Foreign(_)) {
            only_known_fields(&field, f);
        }
        let allow = [("Allow", true), ("Deny", false)];
        let class = Self {
            name: name.to_owned(),
            uid: String::new(),
            provisioner,
            parameters: field.get("parameters").map(f),
            service_account: service_account(&field.get("serviceAccount"), f),
            authorization: field.get("authorization").choice(
                f,
                Authorization::Requester,
                &[
                    ("Requester", Authorization::Requester),
                    ("Class", Authorization::Class),
                ],
            ),
            requester_check: field.get("requesterCheck").choice(
                f,
                RequesterCheck::DryRun,
                &[
                    ("DryRun", RequesterCheck::DryRun),
                    ("AccessReview", RequesterCheck::AccessReview),
                ],
            ),
            approval: match (required, another) {
                (false, _) => Approval::None,
                (true, false) => Approval::ByAnyone,
                (true, true) => Approval::ByAnotherPerson,
            },
            signatures: field.get("signatures").choice(
                f,
                ClassSignatures::IfPolicy,
                &[
                    ("IfPolicy", ClassSignatures::IfPolicy),
                    ("Required", ClassSignatures::Required),
                ],
            ),
            source_types: sources.get("types").texts(f),
            source_hosts: sources.get("hosts").texts(f),
            private_addresses: sources.get("privateAddresses").choice(f, false, &allow),
            pull_secrets: pull_secrets(&sources.get("pullSecrets"), f),
            insecure_hosts: sources.get("insecureHosts").texts(f).unwrap_or_default(),
            namespaces: targets
                .get("namespaces")
                .texts(f)
                .unwrap_or_else(|| vec!["*".to_owned()]),
            cluster_scoped: targets.get("clusterScoped").choice(f, true, &allow),
        };
        if findings.has_errors() {
            let subject = format!("ProvisionerClass/{name}");
            return Err(findings
                .into_iter()
                .map(|finding| Finding {
                    code: codes::review::CLASS_UNREADABLE,
                    ..finding.about(subject.clone())
                })
                .collect());
        }
        Ok(class)
    }

    /// Returns `true` if this program is the provisioner of the class.
    pub fn is_ours(&self) -> bool {
        !matches!(self.provisioner, Provisioner::Foreign(_))
    }

    /// Checks that the provisioner of this class supports content of this format. Each of RukPak's
    /// provisioners supports one format. Callers check the class of the Bundle, and not the class
    /// of its BundleDeployment: a BundleDeployment of the plain class can install a Bundle of the
    /// registry class.
    pub fn reads(&self, format: Format) -> Result<(), Finding> {
        let own = match self.provisioner {
            Provisioner::Plain => Format::PlainV0,
            Provisioner::Registry => Format::RegistryV1,
            Provisioner::Helm => Format::HelmV3,
            Provisioner::Foreign(_) => return Ok(()),
        };
        if own == format {
            return Ok(());
        }
        Err(Finding::error(
            codes::format::WRONG_CLASS,
            format!(
                "the content has the format {format}, but provisioner class {:?} supports {own}",
                self.name
            ),
        )
        .hint(format!(
            "use a class whose provisioner supports {format}, such as core-rukpak-io-{}",
            match format {
                Format::PlainV0 => "plain",
                Format::RegistryV1 => "registry",
                Format::HelmV3 => "helm",
            }
        )))
    }

    /// Returns the format in which content is read. `found` is the format of its files.
    /// `is_declared` is `true` if `bundle.yaml` declares a format. As in RukPak, the provisioner of
    /// charts treats content without files of any format as a chart, and then reports the missing
    /// `Chart.yaml`.
    pub fn format(&self, found: Format, is_declared: bool) -> Result<Format, Finding> {
        let is_unknown = !is_declared && found == Format::PlainV0;
        let format = match self.provisioner {
            Provisioner::Helm if is_unknown => Format::HelmV3,
            _ => found,
        };
        self.reads(format).map(|()| format)
    }

    /// Returns the error if this class does not allow content from `source`. `field` is the path of
    /// the source.
    pub fn source_rejection(&self, source: &Source, field: &str) -> Option<Finding> {
        let kind = source.kind();
        let refuse = |what: String, allowed: &[String]| {
            Finding::error(
                codes::review::SOURCE_NOT_ALLOWED,
                format!("provisioner class {:?} does not allow {what}", self.name),
            )
            .at_field(field)
            .hint(if allowed.is_empty() {
                "the class allows none".to_owned()
            } else {
                format!("the class allows only {}", allowed.join(", "))
            })
        };
        if let Some(types) = &self.source_types
            && !types.iter().any(|allowed| allowed == kind)
        {
            return Some(refuse(format!("sources of type {kind}"), types));
        }
        let host = source.host()?;
        if let Some(hosts) = &self.source_hosts
            && !hosts.iter().any(|pattern| host_matches(pattern, host))
        {
            return Some(refuse(format!("content from {host}"), hosts));
        }
        if let Some(finding) = self.insecure_rejection(source, host, field) {
            return Some(finding);
        }
        let dialled = match source {
            Source::Git { .. } | Source::Http { .. } => true,
            Source::Image { .. } | Source::ConfigMaps(_) | Source::Upload => false,
        };
        if dialled && !self.private_addresses && is_private(host) {
            return Some(
                Finding::error(
                    codes::review::SOURCE_NOT_ALLOWED,
                    format!("provisioner class {:?} does not allow content from the private address {host}", self.name),
                )
                .at_field(field)
                .hint("an administrator can set spec.sources.privateAddresses: Allow in the class"),
            );
        }
        None
    }

    /// Returns `true` if the class allows content from `host` without verified TLS.
    pub fn allows_insecure(&self, host: &str) -> bool {
        let mut patterns = self.insecure_hosts.iter();
        patterns.any(|pattern| host_matches(pattern, host))
    }

    /// Returns the error if `source` requires a connection without verified TLS, and the class does
    /// not allow such a connection to `host`. Images are not checked here, because their spec does
    /// not show whether the registry has TLS. The registry client verifies the certificate of each
    /// registry that the class does not list.
    fn insecure_rejection(&self, source: &Source, host: &str, field: &str) -> Option<Finding> {
        if self.allows_insecure(host) {
            return None;
        }
        let kind = source.kind();
        let (what, member, hint) = match source {
            _ if source.auth().is_some_and(|auth| auth.insecure_skip_verify) => (
                "insecureSkipVerify",
                "auth.insecureSkipVerify",
                "remove it, and ask an administrator to add the certificate authority of the server with --registry-ca, or, for ssh, add the host key to ssh-knownhosts of auth.secret; an administrator can also list the host in spec.sources.insecureHosts of the class",
            ),
            Source::Http { url, .. } if url.starts_with("http://") && !is_loopback(host) => (
                "a URL without TLS",
                "url",
                "use an https URL; an administrator can also list the host in spec.sources.insecureHosts of the class",
            ),
            _ => return None,
        };
        let message = format!(
            "provisioner class {:?} does not allow {what} for {host}",
            self.name
        );
        Some(
            Finding::error(codes::review::SOURCE_NOT_ALLOWED, message)
                .at_field(format!("{field}.{kind}.{member}"))
                .hint(hint),
        )
    }
}

impl Class {
    /// Returns the error if this class, which is the class of a BundleDeployment, does not allow
    /// the registry of the image without verified TLS. `is_insecure` is true if the class of the
    /// Bundle allows this registry without verified TLS; otherwise there is no error. A reference
    /// with a digest is always allowed, because the digest pins the content.
    pub fn insecure_image_rejection(
        &self,
        source: &Source,
        is_insecure: bool,
        field: &str,
    ) -> Option<Finding> {
        let Source::Image { reference, .. } = source else {
            return None;
        };
        let host = reference.registry();
        if !is_insecure || reference.digest().is_some() || self.allows_insecure(host) {
            return None;
        }
        let message = format!(
            "provisioner class {:?} does not allow {host} without verified TLS, and the class of the Bundle allows it",
            self.name
        );
        Some(
            Finding::error(codes::review::SOURCE_NOT_ALLOWED, message)
                .at_field(format!("{field}.image.ref"))
                .hint("name the image by its digest, or use one class; an administrator can also list the host in spec.sources.insecureHosts of both classes"),
        )
    }
}

/// Reports unknown fields of the spec of a class.
fn only_known_fields(spec: &Field<'_>, findings: &mut Findings) {
    let fields: [(&str, &[&str]); 4] = [
        ("approval", &["mode", "by"]),
        ("serviceAccount", &["namespace", "name"]),
        (
            "sources",
            &[
                "types",
                "hosts",
                "privateAddresses",
                "pullSecrets",
                "insecureHosts",
            ],
        ),
        ("targets", &["namespaces", "clusterScoped"]),
    ];
    let mut known = vec![
        "provisioner",
        "parameters",
        "authorization",
        "requesterCheck",
        "signatures",
    ];
    for (name, members) in fields {
        known.push(name);
        spec.get(name).only(members, findings);
    }
    spec.only(&known, findings);
}

fn pull_secrets(field: &Field<'_>, findings: &mut Findings) -> Vec<KubeName> {
    let items = field.items_up_to(MAX_PULL_SECRETS, findings);
    let names = items.map(|item| item.required_name(NameKind::Subdomain, findings));
    names.flatten().collect()
}

/// Splits a host into name and port.
fn split_port(host: &str) -> (&str, Option<&str>) {
    match host.rsplit_once(':') {
        Some((name, port)) if !name.contains(':') || name.ends_with(']') => (name, Some(port)),
        _ => (host, None),
    }
}

/// Returns `true` if the host matches. A pattern without port matches every port. A leading `*`
/// matches any sequence of characters.
fn host_matches(pattern: &str, host: &str) -> bool {
    let (wanted, wanted_port) = split_port(pattern);
    let (name, port) = split_port(host);
    if wanted_port.is_some() && wanted_port != port {
        return false;
    }
    let name = name.to_ascii_lowercase();
    let wanted = wanted.to_ascii_lowercase();
    match wanted.strip_prefix('*') {
        Some(end) => name.ends_with(end),
        None => name == wanted,
    }
}

/// Returns `true` for loopback addresses, and for names of the local host. Requests to these hosts
/// do not leave the pod.
fn is_loopback(host: &str) -> bool {
    let (name, _) = split_port(host);
    let name = name.trim_start_matches('[').trim_end_matches(']');
    match name.parse::<std::net::IpAddr>() {
        Ok(address) => address.is_loopback(),
        Err(_) => is_local_name(name),
    }
}

fn is_local_name(name: &str) -> bool {
    name == "localhost" || name.ends_with(".localhost")
}

/// Returns `true` for loopback, private, link-local and unspecified addresses, and for names of the
/// local host. The client checks the resolved addresses of a name when it connects.
fn is_private(host: &str) -> bool {
    let (name, _) = split_port(host);
    let name = name.trim_start_matches('[').trim_end_matches(']');
    match name.parse::<std::net::IpAddr>() {
        Ok(std::net::IpAddr::V4(v4)) => {
            v4.is_loopback() || v4.is_private() || v4.is_link_local() || v4.is_unspecified()
        }
        Ok(std::net::IpAddr::V6(v6)) => {
            v6.is_loopback()
                || v6.is_unspecified()
                || v6.is_unique_local()
                || v6.is_unicast_link_local()
                || v6
                    .to_ipv4_mapped()
                    .is_some_and(|v4| is_private(&v4.to_string()))
        }
        Err(_) => is_local_name(name),
    }
}

#[cfg(test)]
mod tests;
