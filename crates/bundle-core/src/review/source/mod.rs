//! Parser of `spec` of a Bundle. The parser returns the class and one source that can be fetched.

pub mod git;
mod http;

use serde_json::Value;

use self::git::GitUrl;
use super::{
    canonical,
    fields::{self, Field},
};
use crate::{
    diagnostic::{Code, Finding, Findings, codes},
    names::{KubeName, NameKind},
    reference::{Digest, Reference},
    text::some_of,
};

/// Maximum number of names in a message.
const LISTED: usize = 3;

/// Validated spec of a Bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedBundleSpec {
    /// Name of the ProvisionerClass.
    pub class: KubeName,
    /// Source of the content.
    pub source: Source,
    /// Digest of the meaning of the spec. Specs with the same meaning have the same digest.
    pub digest: Digest,
}

/// Source of the content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Image in a registry.
    Image {
        /// Reference of the image.
        reference: Reference,
        /// Credentials for the registry.
        credentials: PullCredentials,
    },
    /// Directory of a git repository.
    Git {
        /// URL of the repository.
        repository: GitUrl,
        /// Directory in the repository, relative and without `..`.
        directory: String,
        /// Revision to check out.
        checkout: GitRef,
        /// Credentials and TLS settings.
        auth: Auth,
    },
    /// Files from ConfigMaps of the system namespace.
    ConfigMaps(Vec<ConfigMapFiles>),
    /// Archive at a URL.
    Http {
        /// URL, http or https.
        url: String,
        /// Credentials and TLS settings.
        auth: Auth,
    },
    /// Content that is uploaded later.
    Upload,
}

/// Credentials for the registry of an image.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PullCredentials {
    /// Pull secret in the system namespace, which the source names.
    Secret(KubeName),
    /// Pull secrets of the class with this name. A class can have no pull secrets.
    Class(KubeName),
}

impl PullCredentials {
    /// Returns the pull secret that the source names; `None` if the source names no Secret.
    pub fn secret(&self) -> Option<&KubeName> {
        match self {
            Self::Secret(name) => Some(name),
            Self::Class(_) => None,
        }
    }
}

/// Revision to check out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GitRef {
    /// Name of a branch.
    Branch(String),
    /// Name of a tag.
    Tag(String),
    /// Commit, as 40 lowercase hexadecimal digits.
    Commit(String),
}

/// Credentials and TLS settings of a git or http source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Auth {
    /// Secret with credentials, in the system namespace; `None` if the source names no Secret.
    pub secret: Option<KubeName>,
    /// `true` if any TLS certificate or host key is accepted.
    pub insecure_skip_verify: bool,
}

/// Entries of one ConfigMap, as files in one directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigMapFiles {
    /// Name of the ConfigMap, in the system namespace.
    pub name: KubeName,
    /// Directory in the bundle, relative and without `..`. The empty path is the root of the
    /// bundle.
    pub path: String,
}

impl Source {
    /// Returns the value of `spec.source.type`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Image { .. } => "image",
            Self::Git { .. } => "git",
            Self::ConfigMaps(_) => "configMaps",
            Self::Http { .. } => "http",
            Self::Upload => "upload",
        }
    }

    /// Returns the host of the source, with the port if the URL has a port. ConfigMaps and uploads
    /// have no host.
    pub fn host(&self) -> Option<&str> {
        match self {
            Self::Image { reference, .. } => Some(reference.registry()),
            Self::Git { repository, .. } => Some(repository.authority()),
            Self::Http { url, .. } => url_host(url),
            Self::ConfigMaps(_) | Self::Upload => None,
        }
    }

    /// Returns the name of the source for messages: the reference or URL in the spec, or a
    /// description of the source.
    pub fn name(&self) -> String {
        match self {
            Self::Image { reference, .. } => reference.to_string(),
            Self::Git { repository, .. } => repository.as_str().to_owned(),
            Self::ConfigMaps(files) => {
                let names: Vec<_> = files.iter().map(|file| file.name.as_str()).collect();
                format!("the source of ConfigMaps {}", some_of(&names, LISTED))
            }
            Self::Http { url, .. } => url.clone(),
            Self::Upload => "the upload".to_owned(),
        }
    }

    /// Returns credentials and TLS settings of a git or http source; `None` for all other sources.
    pub fn auth(&self) -> Option<&Auth> {
        match self {
            Self::Git { auth, .. } | Self::Http { auth, .. } => Some(auth),
            Self::Image { .. } | Self::ConfigMaps(_) | Self::Upload => None,
        }
    }

    /// Returns the Secret in the system namespace that the source names, with the credentials for
    /// its host; `None` if the source names no Secret.
    pub fn credentials(&self) -> Option<&KubeName> {
        match self {
            Self::Image { credentials, .. } => credentials.secret(),
            _ => self.auth()?.secret.as_ref(),
        }
    }

    /// Returns true if the source names its content by digest or commit, so that it can never name
    /// other content.
    pub fn is_fixed(&self) -> bool {
        match self {
            Self::Image { reference, .. } => reference.digest().is_some(),
            Self::Git { checkout, .. } => matches!(checkout, GitRef::Commit(_)),
            // The content of an upload cannot change: only the first upload that is unpacked is
            // accepted.
            Self::Upload => true,
            Self::ConfigMaps(_) | Self::Http { .. } => false,
        }
    }
}

impl CheckedBundleSpec {
    /// Parses `spec` of a Bundle. Messages begin with `bundle.spec…`, as in RukPak.
    pub fn parse(spec: &Value) -> Result<Self, Findings> {
        Self::parse_at(spec, "bundle", "spec")
    }

    /// Parses the spec of a Bundle in the field `path` of an object. `kind` is the kind of the
    /// object in messages. Messages begin with `<kind>.<path>`.
    pub(super) fn parse_at(spec: &Value, kind: &str, path: &str) -> Result<Self, Findings> {
        let mut findings = Findings::default();
        let field = Field::new(spec, path);
        if !field.is_set() {
            field.missing(&mut findings);
        }
        let class = class_name(&field.get("provisionerClassName"), &mut findings);
        let source = SourceReader {
            kind,
            class: class.as_ref(),
            findings: &mut findings,
        }
        .source(&field.get("source"));
        match (class, source) {
            (Some(class), Some(source)) if !findings.has_errors() => Ok(Self {
                class,
                source,
                digest: canonical::spec_digest(spec),
            }),
            _ => Err(findings),
        }
    }
}

/// Parses the name of a class: a DNS label, as in the schema. Returns `None` if the name is missing
/// or invalid.
pub(super) fn class_name(field: &Field<'_>, findings: &mut Findings) -> Option<KubeName> {
    field.required_name(NameKind::Label, findings)
}

const MEMBERS: [&str; 5] = ["image", "git", "configMaps", "upload", "http"];

/// Maximum number of ConfigMaps of a source. The schema has the same limit, but the API server
/// checks the schema only after the mutating webhook.
const MAX_CONFIG_MAPS: usize = 256;

struct SourceReader<'a> {
    kind: &'a str,
    /// Class of the Bundle. `None` if the name of the class is missing or invalid.
    class: Option<&'a KubeName>,
    findings: &'a mut Findings,
}

impl SourceReader<'_> {
    fn report(&mut self, code: Code, field: &Field<'_>, message: String) {
        let finding = Finding::error(code, message).at_field(field.path.clone());
        fields::push(self.findings, finding);
    }

    fn source(&mut self, field: &Field<'_>) -> Option<Source> {
        if !field.is_set() {
            field.missing(self.findings);
            return None;
        }
        if !field.object(self.findings) {
            return None;
        }
        let kind = field.get("type").required(self.findings)?;
        let member = MEMBERS.iter().copied().find(|member| *member == kind);
        let Some(member) = member else {
            field.get("type").bad(
                self.findings,
                format_args!("`{kind}` is not one of image, git, configMaps, http, upload"),
            );
            return None;
        };
        let body = field.get(member);
        let empty_list = body
            .value()
            .and_then(Value::as_array)
            .is_some_and(Vec::is_empty);
        if (!body.is_set() || empty_list) && member != "upload" {
            // RukPak, which defined these texts, writes member and type in lower case.
            let lower = member.to_lowercase();
            let text = format!(
                "{}.{}.{lower} must be set for source type \"{lower}\"",
                self.kind, field.path
            );
            self.report(codes::review::SOURCE_MEMBER, &body, text);
            return None;
        }
        self.one_of(field, &MEMBERS, member == "upload");
        match member {
            "image" => self.image(&body),
            "git" => self.git(&body),
            "configMaps" => Some(self.config_maps(&body)),
            "http" => self.http(&body),
            _ => Some(Source::Upload),
        }
    }

    /// Checks that exactly one of `members` is set, or none if `none_is_fine`. The schema has the
    /// same rule. This check also works without an API server.
    fn one_of(&mut self, field: &Field<'_>, members: &[&str], none_is_fine: bool) {
        let set: Vec<_> = members
            .iter()
            .copied()
            .filter(|member| field.get(member).is_set())
            .collect();
        if set.len() == 1 || (set.is_empty() && none_is_fine) {
            return;
        }
        let found = if set.is_empty() {
            "Found none valid".to_owned()
        } else {
            format!(
                "Found {} valid alternatives ({})",
                set.len(),
                set.join(", ")
            )
        };
        let text = format!(
            "{}.{} must validate one and only one schema (oneOf). {found}",
            self.kind, field.path
        );
        self.report(codes::review::SOURCE_UNION, field, text);
    }

    fn image(&mut self, body: &Field<'_>) -> Option<Source> {
        let reference = body.get("ref");
        let text = reference.required(self.findings)?;
        let pull_secret = body
            .get("pullSecret")
            .name(NameKind::Subdomain, self.findings);
        match text.parse() {
            Ok(parsed) => Some(Source::Image {
                reference: parsed,
                credentials: match pull_secret {
                    Some(name) => PullCredentials::Secret(name),
                    None => PullCredentials::Class(self.class?.clone()),
                },
            }),
            Err(finding) => {
                let finding: Finding = finding;
                fields::push(self.findings, finding.at_field(reference.path));
                None
            }
        }
    }

    fn git(&mut self, body: &Field<'_>) -> Option<Source> {
        let url = body.get("repository");
        let repository = url.required(self.findings).map(GitUrl::parse);
        if let Some(Err(why)) = repository {
            url.bad(self.findings, why);
        }
        let reference = body.get("ref");
        self.one_of(&reference, &["branch", "tag", "commit"], false);
        let mut checkout = None;
        for member in ["branch", "tag", "commit"] {
            let field = reference.get(member);
            let Some(text) = field.text(self.findings) else {
                continue;
            };
            let valid = match member {
                "branch" => git::check_ref(text).map(|()| GitRef::Branch(text.to_owned())),
                "tag" => git::check_ref(text).map(|()| GitRef::Tag(text.to_owned())),
                _ => git::parse_commit(text).map(GitRef::Commit),
            };
            match valid {
                Ok(valid) => checkout = Some(valid),
                Err(why) => field.bad(self.findings, format_args!("`{text}` {why}")),
            }
        }
        if checkout.is_none() && !self.findings.has_errors() {
            reference.missing(self.findings);
        }
        let directory = body.get("directory");
        let given = directory
            .text(self.findings)
            .unwrap_or(git::DEFAULT_DIRECTORY);
        let inside = match inside(given) {
            Ok(path) => match git::check_directory(&path) {
                Ok(()) => Some(path),
                Err(why) => {
                    directory.bad(self.findings, why);
                    None
                }
            },
            Err(PathError::Absolute) => {
                let text = format!(
                    "{}.{} is absolute: directory must define path within the repository",
                    self.kind, directory.path
                );
                self.report(codes::review::SOURCE_PATH, &directory, text);
                None
            }
            Err(PathError::Above) => {
                let text = format!(
                    "{}.{} begins with \"../\": directory must define path within the repository",
                    self.kind, directory.path
                );
                self.report(codes::review::SOURCE_PATH, &directory, text);
                None
            }
        };
        Some(Source::Git {
            repository: repository?.ok()?,
            directory: inside?,
            checkout: checkout?,
            auth: self.auth(&body.get("auth")),
        })
    }

    fn config_maps(&mut self, body: &Field<'_>) -> Source {
        let mut files = Vec::new();
        let items = body.items_up_to(MAX_CONFIG_MAPS, self.findings);
        for (index, item) in items.enumerate() {
            let name = item
                .get("configMap")
                .get("name")
                .required_name(NameKind::Subdomain, self.findings);
            let path = item.get("path");
            let given = path.text(self.findings).unwrap_or_default();
            match (name, inside(given)) {
                (Some(name), Ok(path)) => files.push(ConfigMapFiles { name, path }),
                (_, Err(_)) => {
                    let list = body.path.to_lowercase();
                    let text = format!(
                        "{}.{list}[{index}].path is invalid: {given:?} is outside bundle root",
                        self.kind
                    );
                    self.report(codes::review::SOURCE_PATH, &path, text);
                }
                (None, Ok(_)) => {}
            }
        }
        Source::ConfigMaps(files)
    }

    fn http(&mut self, body: &Field<'_>) -> Option<Source> {
        let field = body.get("url");
        let url = field.required(self.findings)?;
        if let Err(why) = http::check_url(url) {
            field.bad(self.findings, format_args!("the URL {why}"));
            return None;
        }
        Some(Source::Http {
            url: url.to_owned(),
            auth: self.auth(&body.get("auth")),
        })
    }

    fn auth(&mut self, field: &Field<'_>) -> Auth {
        field.object(self.findings);
        Auth {
            secret: field
                .get("secret")
                .get("name")
                .name(NameKind::Subdomain, self.findings),
            insecure_skip_verify: field.get("insecureSkipVerify").flag(self.findings),
        }
    }
}

enum PathError {
    Absolute,
    Above,
}

/// Returns the path without `.` and `..`. Returns an error if the path is outside of the root.
fn inside(path: &str) -> Result<String, PathError> {
    if path.starts_with('/') {
        return Err(PathError::Absolute);
    }
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop().ok_or(PathError::Above)?;
            }
            part => parts.push(part),
        }
    }
    Ok(parts.join("/"))
}

/// Returns host and port of `https://user@host:port/path`; `None` for other texts.
fn url_host(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit('@').next()?;
    Some(host).filter(|host| !host.is_empty())
}

#[cfg(test)]
mod tests;
