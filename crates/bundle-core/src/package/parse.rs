//! Reads `bundle.yaml`: every field is checked, all findings are told at once, and no field is passed over in silence.
//! Not here: what the fields mean (package), reading maps (fields), YAML itself (yaml).

use std::cell::RefCell;

use super::{
    Config, FILE, Format, Image, MAX_NAME, Package, Requirement, Requires, Resource, Upgrades,
    fields::{Fields, File},
};
use crate::{
    diagnostic::{Finding, Findings, codes},
    object::{is_dns_label, is_dns_subdomain},
    version::{Kubernetes, Minor, Range, Unsupported},
    yaml,
};

/// The `apiVersion` of a package.
pub const API_VERSION: &str = "bundle.core.rukpak.io/v1alpha1";
/// The `kind` of a package.
pub const KIND: &str = "Package";

const FIELDS: &[&str] = &[
    "apiVersion",
    "kind",
    "name",
    "version",
    "format",
    "description",
    "kubernetes",
    "requires",
    "upgrades",
    "images",
    "config",
    "resources",
    "source",
    "revision",
    "licenses",
    "url",
];

/// Reads the text of a `bundle.yaml`.
pub fn parse(text: &[u8]) -> Result<Package, Findings> {
    let documents = yaml::documents(text, FILE)?;
    let [document] = &documents[..] else {
        let line = documents.get(1).map_or(1, |document| document.line);
        return Err(Finding::error(
            codes::format::BAD_PACKAGE,
            "a second document follows, and a package is one",
        )
        .in_file(FILE)
        .at_line(line)
        .hint("manifests belong into manifests/")
        .into());
    };
    let file = File {
        name: FILE,
        text,
        findings: RefCell::default(),
    };
    let package =
        Fields::new(&document.value, "", &file, FIELDS).and_then(|fields| package(&fields));
    let findings = file.findings.into_inner();
    match package {
        Some(package) if !findings.has_errors() => Ok(package),
        _ => Err(findings),
    }
}

fn package(fields: &Fields<'_>) -> Option<Package> {
    constant(fields, "apiVersion", API_VERSION);
    constant(fields, "kind", KIND);
    let name = required(fields, "name", "web", name);
    let version = required(fields, "version", "1.4.0", semantic_version);
    let format = required(
        fields,
        "format",
        Format::PlainV0.as_str(),
        str::parse::<Format>,
    );
    let description = fields.parsed("description", one_line);
    let kubernetes = kubernetes(fields);
    let requires = requires(fields);
    let upgrades = upgrades(fields);
    let images = fields.list("images", &["name", "image"], |image| {
        Some(Image {
            name: image.required("name", "agent")?.to_owned(),
            image: image
                .required("image", "registry.example.com/agent:2.1.0")?
                .to_owned(),
        })
    });
    let config = fields
        .fields("config", &["schema", "default"])
        .map(|config| Config {
            schema: config.parsed("schema", path),
            default: config.parsed("default", path),
        });
    let resources = fields.list("resources", &["name", "type", "path"], |resource| {
        Some(Resource {
            name: resource.required("name", "dashboards")?.to_owned(),
            kind: resource.required("type", "grafana-dashboard")?.to_owned(),
            path: required(resource, "path", "dashboards/", path)?,
        })
    });
    let source = fields.parsed("source", one_line);
    let revision = fields.parsed("revision", one_line);
    let licenses = fields.parsed("licenses", one_line);
    let url = fields.parsed("url", one_line);
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
        source,
        revision,
        licenses,
        url,
    })
}

fn required<T>(
    fields: &Fields<'_>,
    key: &str,
    example: &str,
    parse: impl FnOnce(&str) -> Result<T, Finding>,
) -> Option<T> {
    fields.read(key, fields.required(key, example)?, parse)
}

fn constant(fields: &Fields<'_>, key: &str, value: &str) {
    let _ = required(fields, key, value, |text| {
        if text == value {
            return Ok(());
        }
        Err(bad(format!("`{text}` is not known here")).hint(format!("write `{key}: {value}`")))
    });
}

fn kubernetes(fields: &Fields<'_>) -> Option<Kubernetes> {
    let fields = fields.fields("kubernetes", &["baseline", "supported", "unsupported"])?;
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
        fields.file().say(
            &fields.at("baseline"),
            codes::format::BAD_RANGE,
            format!("the baseline {baseline} lies outside of what is supported, {supported}"),
            "widen `supported`, or name a baseline within it",
        );
    }
    Some(kubernetes)
}

fn requires(fields: &Fields<'_>) -> Option<Requires> {
    let fields = fields.fields("requires", &["apis", "packages"])?;
    let apis = fields.texts("apis");
    for (path, text) in &apis {
        if !is_api(text) {
            fields.file().say(
                path,
                codes::format::BAD_PACKAGE,
                format!("`{text}` is not an API"),
                "write group, version and kind: `monitoring.coreos.com/v1/ServiceMonitor`, or `v1/Node`",
            );
        }
    }
    Some(Requires {
        apis: apis.into_iter().map(|(_, text)| text.to_owned()).collect(),
        packages: fields.list("packages", &["name", "version"], |package| {
            let name = required(package, "name", "cert-manager", name);
            let version = required(package, "version", "^1.14", Range::parse);
            Some(Requirement {
                name: name?,
                version: version?,
            })
        }),
    })
}

fn upgrades(fields: &Fields<'_>) -> Option<Upgrades> {
    let fields = fields.fields("upgrades", &["from"])?;
    Some(Upgrades {
        from: required(&fields, "from", "\">=1.2\"", Range::parse)?,
    })
}

fn bad(message: String) -> Finding {
    Finding::error(codes::format::BAD_PACKAGE, message)
}

fn name(text: &str) -> Result<String, Finding> {
    if is_dns_label(text) && text.len() <= MAX_NAME {
        return Ok(text.to_owned());
    }
    let why = if text.len() > MAX_NAME {
        format!(
            "it has {} characters, and at most {MAX_NAME} fit",
            text.len()
        )
    } else {
        "only lower-case letters, digits and `-` are, and it starts and ends with a letter or digit"
            .to_owned()
    };
    Err(
        bad(format!("`{text}` cannot be the name of a package: {why}"))
            .hint("choose a name such as `web` or `cert-manager`"),
    )
}

/// Strict: three numbers, no `v`, no leading zeros. Says what was probably meant.
fn semantic_version(text: &str) -> Result<semver::Version, Finding> {
    semver::Version::parse(text).map_err(|error| {
        let finding = Finding::error(
            codes::format::BAD_VERSION,
            format!("`{text}` is not a semantic version: {error}"),
        );
        match meant(text) {
            Some(version) => finding.hint(format!("try with `{version}`")),
            None => finding.hint("a semantic version has three numbers: try with `1.4.0`"),
        }
    })
}

/// The semantic version that a looser one stands for: `v1.4` is `1.4.0`.
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

fn one_line(text: &str) -> Result<String, Finding> {
    let trimmed = text.trim();
    if trimmed.contains(char::is_control) {
        return Err(
            bad("the text has more than one line, or control characters".to_owned())
                .hint("write one line"),
        );
    }
    Ok(trimmed.to_owned())
}

/// A path within the bundle.
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
    Err(bad(format!("`{text}` is not a path within the bundle"))
        .hint("write it relative to bundle.yaml, without `..`"))
}
