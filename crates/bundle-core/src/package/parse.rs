//! Parser of `bundle.yaml`: checks every field, reports all findings, and rejects unknown fields.

use std::cell::RefCell;

use super::{
    API_VERSION, Config, ConfigPatch, FILE, Format, Image, KIND, Link, MAX_NAME, Maintainer,
    Package, PackageInfo, Requirement, Requires, Resource, Scan, Security, Upgrades, annotations,
    fields::{Fields, File},
    probe,
    shape::PACKAGE,
    texts::{bad, one_line, pointer, title},
};
use crate::{
    diagnostic::{Finding, Findings, codes},
    object::{GroupKind, is_dns_label, is_dns_subdomain},
    reference::Digest,
    version::{Kubernetes, Minor, Range, Unsupported},
    yaml,
};

/// Parses the text of a `bundle.yaml`.
pub fn parse(text: &[u8]) -> Result<Package, Findings> {
    let documents = yaml::documents(text, FILE)?;
    let [document] = &documents[..] else {
        let line = documents.get(1).map_or(1, |document| document.line);
        return Err(Finding::error(
            codes::format::BAD_PACKAGE,
            "the file has more than one document",
        )
        .in_file(FILE)
        .at_line(line)
        .hint("move manifests to manifests/")
        .into());
    };
    let file = File {
        name: FILE,
        text,
        findings: RefCell::default(),
    };
    let package =
        Fields::new(&document.value, "", &file, &PACKAGE).and_then(|fields| package(&fields));
    if let Some(package) = &package {
        let size = annotations::size(package);
        if size > annotations::MAX_BYTES {
            file.add_error(
                "",
                codes::format::BAD_PACKAGE,
                format!(
                    "the annotations of the OCI manifest would have {size} bytes, more than the limit of {}",
                    annotations::MAX_BYTES
                ),
                "shorten descriptions, links, requirements and security",
            );
        }
    }
    let findings = file.into_findings();
    match package {
        Some(package) if !findings.has_errors() => Ok(package),
        _ => Err(findings),
    }
}

fn package(fields: &Fields<'_>) -> Option<Package> {
    constant(fields, "apiVersion", API_VERSION);
    constant(fields, "kind", KIND);
    let name = fields.required_as("name", name);
    let version = fields.required_as("version", semantic_version);
    let format = fields.required_as("format", str::parse::<Format>);
    let description = fields.parsed("description", one_line);
    let kubernetes = kubernetes(fields);
    let requires = requires(fields);
    let upgrades = upgrades(fields);
    let images = fields.list("images", |image| {
        let name = image.required_as("name", title);
        let image = image.required_as("image", title);
        Some(Image {
            name: name?,
            image: image?,
        })
    });
    let config = fields.fields("config").map(|config| Config {
        schema: config.parsed("schema", path),
        default: config.parsed("default", path),
        patches: patches(&config),
    });
    if let (Some(config), Some(format)) = (&config, format) {
        check_patches(fields, config, format);
    }
    let resources = fields.list("resources", |resource| {
        let name = resource.required_as("name", title);
        let kind = resource.required_as("type", title);
        let path = resource.required_as("path", path);
        Some(Resource {
            name: name?,
            kind: kind?,
            path: path?,
        })
    });
    let probes = probe::probes(fields);
    let about = about(fields);
    Some(Package {
        name: name?,
        version: version?,
        format: format?,
        description,
        kubernetes,
        requires,
        upgrades,
        images,
        config,
        resources,
        probes,
        about,
    })
}

fn patches(config: &Fields<'_>) -> Vec<ConfigPatch> {
    config.list("patches", |patch| {
        let kind = patch.required_as("kind", kind);
        let name = patch.required_as("name", title);
        let namespace = patch.parsed("namespace", title);
        let path = patch.required_as("path", pointer);
        let value = patch.required_as("value", pointer);
        Some(ConfigPatch {
            kind: kind?,
            name: name?,
            namespace,
            path: path?,
            value: value?,
        })
    })
}

/// Rejects patches in a format other than plain+v0, and patches without a schema.
fn check_patches(fields: &Fields<'_>, config: &Config, format: Format) {
    if config.patches.is_empty() {
        return;
    }
    let reject = |message: &str, hint: &str| {
        fields
            .file()
            .report("config.patches", bad(message.to_owned()).hint(hint));
    };
    if format != Format::PlainV0 {
        reject(
            &format!("the format {format} has no patches"),
            "remove the patches; a chart uses the configuration as values",
        );
    }
    if config.schema.is_none() {
        reject(
            "the patches write values that are not validated",
            "add config.schema with the file of a JSON Schema",
        );
    }
}

/// Validates a kind with its API group, such as `Deployment.apps`.
fn kind(text: &str) -> Result<String, Finding> {
    let kind = GroupKind::parse(text);
    let valid = kind
        .kind
        .starts_with(|first: char| first.is_ascii_uppercase())
        && kind.kind.bytes().all(|byte| byte.is_ascii_alphanumeric())
        && (kind.group.is_empty() && !text.ends_with('.') || is_dns_subdomain(&kind.group));
    if valid {
        return Ok(text.to_owned());
    }
    Err(bad(format!("invalid kind `{text}`")).hint("write kind and group, such as Deployment.apps"))
}

fn about(fields: &Fields<'_>) -> PackageInfo {
    PackageInfo {
        maintainers: fields.list("maintainers", |maintainer| {
            let name = maintainer.required_as("name", title);
            let email = maintainer.parsed("email", email);
            let url = maintainer.parsed("url", url);
            Some(Maintainer {
                name: name?,
                email,
                url,
            })
        }),
        links: fields.list("links", |link| {
            let name = link.required_as("name", title);
            let url = link.required_as("url", url);
            Some(Link {
                name: name?,
                url: url?,
            })
        }),
        icon: fields.parsed("icon", icon),
        keywords: fields.texts_as("keywords", title),
        security: fields.fields("security").and_then(|security| {
            let scan = security.required_as("scan", |text| match text {
                "enabled" => Ok(Scan::Enabled),
                "disabled" => Ok(Scan::Disabled),
                other => Err(bad(format!("`{other}` is neither enabled nor disabled"))
                    .hint("write `scan: enabled` or `scan: disabled`")),
            });
            let security = Security {
                scan: Scan::Disabled,
                languages: security.texts_as("languages", title),
                exclude: security.texts_as("exclude", title),
                images: security.texts_as("images", title),
                branch: security.parsed("branch", title),
                candidate: security.parsed("candidate", title),
            };
            Some(Security {
                scan: scan?,
                ..security
            })
        }),
        source: fields.parsed("source", one_line),
        revision: fields.parsed("revision", one_line),
        licenses: fields.parsed("licenses", one_line),
        url: fields.parsed("url", one_line),
    }
}

fn constant(fields: &Fields<'_>, key: &str, value: &str) {
    let _ = fields.required_as(key, |text| {
        if text == value {
            return Ok(());
        }
        Err(bad(format!("unknown value `{text}`")).hint(format!("write `{key}: {value}`")))
    });
}

fn kubernetes(fields: &Fields<'_>) -> Option<Kubernetes> {
    let fields = fields.fields("kubernetes")?;
    let kubernetes = Kubernetes {
        baseline: fields.parsed("baseline", str::parse::<Minor>),
        supported: fields.parsed("supported", Range::parse),
        unsupported: fields
            .parsed("unsupported", |text| match text {
                "Reject" => Ok(Unsupported::Reject),
                "Warn" => Ok(Unsupported::Warn),
                other => Err(bad(format!("`{other}` is neither Reject nor Warn"))
                    .hint("write `unsupported: Reject` or `unsupported: Warn`")),
            })
            .unwrap_or_default(),
    };
    if let (Some(baseline), Some(supported)) = (kubernetes.baseline, &kubernetes.supported)
        && !supported.overlaps(
            [baseline.0, baseline.1, 0],
            [baseline.0, baseline.1.saturating_add(1), 0],
        )
    {
        fields.file().add_error(
            &fields.at("baseline"),
            codes::format::BAD_RANGE,
            format!("the baseline {baseline} is outside of the supported range {supported}"),
            "extend `supported`, or set a baseline within it",
        );
    }
    Some(kubernetes)
}

fn requires(fields: &Fields<'_>) -> Option<Requires> {
    let fields = fields.fields("requires")?;
    Some(Requires {
        apis: fields.texts_as("apis", |text| {
            if is_api(text) {
                return Ok(text.to_owned());
            }
            Err(bad(format!("invalid API `{text}`")).hint(
                "write group, version and kind: `monitoring.coreos.com/v1/ServiceMonitor`, or `v1/Node`",
            ))
        }),
        packages: fields.list("packages", |package| {
            let name = package.required_as("name", name);
            let version = package.required_as("version", Range::parse);
            let digest = package.parsed("digest", str::parse::<Digest>);
            Some(Requirement {
                name: name?,
                version: version?,
                digest,
            })
        }),
    })
}

fn upgrades(fields: &Fields<'_>) -> Option<Upgrades> {
    let fields = fields.fields("upgrades")?;
    if fields.value("from").is_none() && fields.value("minimum").is_none() {
        fields.file().add_error(
            &fields.at("from"),
            codes::format::BAD_PACKAGE,
            "neither `from` nor `minimum` is set",
            "add `from: \">=1.2\"` or `minimum: 1.2.0`",
        );
    }
    Some(Upgrades {
        from: fields.parsed("from", Range::parse),
        minimum: fields.parsed("minimum", semantic_version),
    })
}

pub(super) fn name(text: &str) -> Result<String, Finding> {
    if is_dns_label(text) && text.len() <= MAX_NAME {
        return Ok(text.to_owned());
    }
    let why = if text.len() > MAX_NAME {
        format!(
            "it has {} characters, more than the limit of {MAX_NAME}",
            text.len()
        )
    } else {
        "a name has lower-case letters, digits and `-`, and begins and ends with a letter or digit"
            .to_owned()
    };
    Err(bad(format!("invalid package name `{text}`: {why}"))
        .hint("choose a name such as `web` or `cert-manager`"))
}

/// Parses a strict semantic version: three numbers, no `v`, no leading zeros. The error suggests a
/// correction.
pub(super) fn semantic_version(text: &str) -> Result<semver::Version, Finding> {
    semver::Version::parse(text).map_err(|error| {
        let finding = Finding::error(
            codes::format::BAD_VERSION,
            format!("`{text}` is not a semantic version: {error}"),
        );
        match meant(text) {
            Some(version) => finding.hint(format!("did you mean `{version}`?")),
            None => finding.hint("a semantic version has three numbers, such as `1.4.0`"),
        }
    })
}

/// Converts a loose version to a semantic version: `v1.4` becomes `1.4.0`. Returns `None` if the
/// text has no such form.
fn meant(text: &str) -> Option<semver::Version> {
    let text = text.trim().trim_start_matches(['v', 'V', '=']);
    let end = text
        .find(|letter: char| !(letter.is_ascii_digit() || letter == '.'))
        .unwrap_or(text.len());
    let (numbers, tail) = text.split_at(end);
    let mut numbers: Vec<u64> = numbers
        .split('.')
        .map(|number| number.parse().ok())
        .collect::<Option<_>>()?;
    if numbers.len() > 3 {
        return None;
    }
    numbers.resize(3, 0);
    let [major, minor, patch] = numbers[..] else {
        return None;
    };
    semver::Version::parse(&format!("{major}.{minor}.{patch}{tail}")).ok()
}

fn is_api(text: &str) -> bool {
    let parts: Vec<&str> = text.split('/').collect();
    let (group, version, kind) = match parts[..] {
        [version, kind] => ("core", version, kind),
        [group, version, kind] => (group, version, kind),
        _ => return false,
    };
    is_dns_subdomain(group)
        && is_dns_label(version)
        && version.starts_with('v')
        && kind.starts_with(|letter: char| letter.is_ascii_uppercase())
        && is_dns_label(&kind.to_ascii_lowercase())
}

/// Checks that a text has the form of an email address.
fn email(text: &str) -> Result<String, Finding> {
    let odd = |letter: char| {
        letter.is_whitespace() || letter.is_control() || matches!(letter, '<' | '>' | ',')
    };
    match text.split_once('@') {
        Some((user, host))
            if !user.is_empty()
                && !host.is_empty()
                && !host.contains('@')
                && !text.contains(odd) =>
        {
            Ok(text.to_owned())
        }
        _ => Err(bad(format!("invalid mail address `{text}`"))
            .hint("write only the address, such as `team@example.com`; put the name in `name`")),
    }
}

/// Validates a URL for browsers.
fn url(text: &str) -> Result<String, Finding> {
    let rest = text
        .strip_prefix("https://")
        .or_else(|| text.strip_prefix("http://"));
    let fits = rest.is_some_and(|rest| {
        !rest.is_empty()
            && !rest.starts_with(['/', '?', '#'])
            && !rest.contains(|letter: char| letter.is_whitespace() || letter.is_control())
    });
    if fits {
        return Ok(text.to_owned());
    }
    Err(bad(format!("invalid URL `{text}`"))
        .hint("write it with its scheme: `https://example.com/docs`"))
}

/// Validates an icon: a path in the bundle, or an https URL.
fn icon(text: &str) -> Result<String, Finding> {
    if text.starts_with("https://") {
        return url(text);
    }
    if text.starts_with("http:") {
        return Err(bad(format!("`{text}` has no encryption"))
            .hint("use an https URL, or add the file to the bundle"));
    }
    path(text)
}

/// Validates a path in the bundle.
fn path(text: &str) -> Result<String, Finding> {
    let within = !text.starts_with('/')
        && !text.contains(['\\', '\0'])
        && text
            .trim_end_matches('/')
            .split('/')
            .all(|part| !matches!(part, "" | "." | ".."));
    if within {
        return Ok(text.to_owned());
    }
    Err(bad(format!("invalid path `{text}`"))
        .hint("write a path relative to bundle.yaml, without `..`"))
}
