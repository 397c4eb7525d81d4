//! Table of the fields of `bundle.yaml`: names, types and descriptions. The parser and the JSON
//! Schema are based on this table.

mod probe;

use probe::PROBE;

/// Map with its allowed fields.
pub(super) struct Shape {
    /// Fields, in the usual order of a file.
    pub(super) fields: &'static [Field],
    /// Minimum number of fields that must be set.
    pub(super) least: usize,
    /// Unsupported fields that similar files of other tools have, each with the hint of its error.
    pub(super) unsupported: &'static [(&'static str, &'static str)],
}

/// Field of a map.
pub(super) struct Field {
    /// Name of the field.
    pub(super) name: &'static str,
    /// Description, for editors.
    pub(super) doc: &'static str,
    /// `true` if the field is required.
    pub(super) required: bool,
    /// Valid example value.
    pub(super) example: &'static str,
    /// Type of the value.
    pub(super) holds: FieldType,
}

/// Type of a field's value.
pub(super) enum FieldType {
    /// A text of this type.
    Text(Text),
    /// A list of texts of this type.
    Texts(Text),
    /// A map with these fields.
    Map(&'static Shape),
    /// A list of maps with these fields.
    Maps(&'static Shape),
}

/// Type of a text.
#[derive(Clone, Copy)]
pub(super) enum Text {
    /// Exactly this text.
    Only(&'static str),
    /// One of these values.
    OneOf(&'static [&'static str]),
    /// One line without control characters.
    Line,
    /// Name or title: one or more words in one line, not empty.
    Title,
    /// The name of a package.
    Name,
    /// A semantic version.
    Version,
    /// A minor version of Kubernetes.
    Minor,
    /// Range of versions.
    Range,
    /// `group/version/Kind` or `version/Kind`.
    Api,
    /// Kind with its API group: `Deployment.apps`.
    Kind,
    /// Kind without its API group: `Deployment`.
    BareKind,
    /// API group: `example.com`.
    Group,
    /// Any text.
    Any,
    /// JSON pointer (RFC 6901) to a field.
    Pointer,
    /// A digest.
    Digest,
    /// A path within the bundle.
    Path,
    /// URL that begins with `https:` or `http:`.
    Url,
    /// Path in the bundle, or URL that begins with `https:`.
    PathOrUrl,
    /// Email address.
    Email,
}

/// Maximum length of a text, in characters.
pub(super) const MAX_TEXT: usize = 2048;
/// Maximum number of items in a list.
pub(super) const MAX_ITEMS: usize = 500;

impl Shape {
    /// Returns the field with that name; `None` if the table does not contain the field.
    pub(super) fn field(&self, name: &str) -> Option<&'static Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// Returns the names of all fields.
    pub(super) fn names(&self) -> Vec<&'static str> {
        self.fields.iter().map(|field| field.name).collect()
    }
}

const fn field(name: &'static str, holds: FieldType, doc: &'static str) -> Field {
    Field {
        name,
        doc,
        required: false,
        example: "",
        holds,
    }
}

const fn text(name: &'static str, kind: Text, doc: &'static str) -> Field {
    field(name, FieldType::Text(kind), doc)
}

const fn needed(name: &'static str, kind: Text, example: &'static str, doc: &'static str) -> Field {
    Field {
        required: true,
        example,
        ..text(name, kind, doc)
    }
}

const fn shape(fields: &'static [Field]) -> Shape {
    Shape {
        fields,
        least: 0,
        unsupported: &[],
    }
}

/// Fields of the whole file.
pub(super) static PACKAGE: Shape = shape(&[
    needed(
        "apiVersion",
        Text::Only(super::API_VERSION),
        super::API_VERSION,
        "Version of the fields of this file.",
    ),
    needed(
        "kind",
        Text::Only(super::KIND),
        super::KIND,
        "Kind of this file.",
    ),
    needed(
        "name",
        Text::Name,
        "web",
        "Name of the package: lower-case letters, digits and `-`, at most 45 characters.",
    ),
    needed(
        "version",
        Text::Version,
        "1.4.0",
        "Semantic version with all three numbers and without `v`.",
    ),
    needed(
        "format",
        Text::OneOf(super::FORMATS),
        "plain+v0",
        "Format of the content: plain manifests, an OLM bundle, or a Helm chart.",
    ),
    text(
        "description",
        Text::Line,
        "Summary in one line, which `inspect` prints.",
    ),
    field(
        "kubernetes",
        FieldType::Map(&KUBERNETES),
        "Supported versions of Kubernetes.",
    ),
    field(
        "requires",
        FieldType::Map(&REQUIRES),
        "Prerequisites in the cluster.",
    ),
    field(
        "upgrades",
        FieldType::Map(&UPGRADES),
        "Installed versions that this version can replace.",
    ),
    field(
        "images",
        FieldType::Maps(&IMAGE),
        "Images that no manifest contains. They are listed, locked and copied with the other images.",
    ),
    field(
        "config",
        FieldType::Map(&CONFIG),
        "Configuration, as files of the bundle.",
    ),
    field(
        "resources",
        FieldType::Maps(&RESOURCE),
        "Additional content that is not installed in a cluster.",
    ),
    field(
        "probes",
        FieldType::Maps(&PROBE),
        "Assertions that objects of the content must meet to be healthy. At most 32.",
    ),
    field("maintainers", FieldType::Maps(&MAINTAINER), "Maintainers."),
    field(
        "links",
        FieldType::Maps(&LINK),
        "Links to further information, by name.",
    ),
    text(
        "icon",
        Text::PathOrUrl,
        "Icon: a file of the bundle, or an https URL.",
    ),
    field(
        "keywords",
        FieldType::Texts(Text::Title),
        "Keywords for searches.",
    ),
    field(
        "security",
        FieldType::Map(&SECURITY),
        "Settings for security scanners.",
    ),
    text("source", Text::Line, "URL of the source repository."),
    text("revision", Text::Line, "Revision of the source."),
    text("licenses", Text::Line, "Licences, as an SPDX expression."),
    text("url", Text::Line, "Home page."),
]);

static KUBERNETES: Shape = shape(&[
    text(
        "baseline",
        Text::Minor,
        "The minor version of Kubernetes that the package is developed for, with any patch \
        version. In quotes: \"1.33\".",
    ),
    text(
        "supported",
        Text::Range,
        "The range of supported versions: \">=1.31 <1.38\".",
    ),
    text(
        "unsupported",
        Text::OneOf(&["Reject", "Warn"]),
        "Handling of unsupported Kubernetes versions. Default: Reject.",
    ),
]);

static REQUIRES: Shape = shape(&[
    field(
        "apis",
        FieldType::Texts(Text::Api),
        "APIs, as group/version/Kind, or version/Kind for the core group.",
    ),
    field(
        "packages",
        FieldType::Maps(&REQUIREMENT),
        "Packages that must be installed.",
    ),
]);

static REQUIREMENT: Shape = shape(&[
    needed("name", Text::Name, "cert-manager", "Name of the package."),
    needed(
        "version",
        Text::Range,
        "^1.14",
        "Range of accepted versions of the package.",
    ),
    text(
        "digest",
        Text::Digest,
        "Digest of the OCI manifest of the only accepted content.",
    ),
]);

static UPGRADES: Shape = Shape {
    least: 1,
    unsupported: &[],
    fields: &[
        text(
            "from",
            Text::Range,
            "Range of the installed versions that this version can replace.",
        ),
        text(
            "minimum",
            Text::Version,
            "The lowest installed version that this version can replace.",
        ),
    ],
};

static IMAGE: Shape = shape(&[
    needed("name", Text::Title, "agent", "Name within the bundle."),
    needed(
        "image",
        Text::Title,
        "registry.example.com/agent:2.1.0",
        "Reference of the image.",
    ),
]);

static CONFIG: Shape = shape(&[
    text(
        "schema",
        Text::Path,
        "JSON Schema that a configuration must meet.",
    ),
    text(
        "default",
        Text::Path,
        "The default configuration. For a chart: values that override the values of the chart.",
    ),
    field(
        "patches",
        FieldType::Maps(&PATCH),
        "Fields of objects that get values of the configuration, for plain+v0. Requires schema.",
    ),
]);

static PATCH: Shape = shape(&[
    needed(
        "kind",
        Text::Kind,
        "Deployment.apps",
        "Kind of the object, with its API group.",
    ),
    needed("name", Text::Title, "web", "Name of the object."),
    text(
        "namespace",
        Text::Title,
        "Namespace of the object, if several objects have this kind and name.",
    ),
    needed(
        "path",
        Text::Pointer,
        "/spec/replicas",
        "JSON pointer of the field in the object. Its parent must exist.",
    ),
    needed(
        "value",
        Text::Pointer,
        "/replicas",
        "JSON pointer of the value in the configuration. Without a value the field is not changed.",
    ),
]);

static RESOURCE: Shape = shape(&[
    needed("name", Text::Title, "dashboards", "Name within the bundle."),
    needed(
        "type",
        Text::Title,
        "grafana-dashboard",
        "Type of the resource. The programs that read it define the types.",
    ),
    needed(
        "path",
        Text::Path,
        "dashboards/",
        "File of the bundle, or a folder with `/` at its end.",
    ),
]);

static MAINTAINER: Shape = shape(&[
    needed(
        "name",
        Text::Title,
        "Team Web",
        "Name of the person or team.",
    ),
    text("email", Text::Email, "Mail address."),
    text("url", Text::Url, "Home page."),
]);

static LINK: Shape = shape(&[
    needed(
        "name",
        Text::Title,
        "documentation",
        "Kind of link: documentation, repository, support, …",
    ),
    needed(
        "url",
        Text::Url,
        "https://example.com/docs",
        "URL with https:// or http://.",
    ),
]);

static SECURITY: Shape = shape(&[
    needed(
        "scan",
        Text::OneOf(&["enabled", "disabled"]),
        "enabled",
        "Enables or disables scanners for source and images.",
    ),
    field(
        "languages",
        FieldType::Texts(Text::Title),
        "Languages of the source: go, python, …",
    ),
    field(
        "exclude",
        FieldType::Texts(Text::Title),
        "Excluded paths of the source, as patterns.",
    ),
    field(
        "images",
        FieldType::Texts(Text::Title),
        "Images that are scanned. Default: all images of the bundle.",
    ),
    text(
        "branch",
        Text::Title,
        "Branch of the source that is scanned while it is developed.",
    ),
    text(
        "candidate",
        Text::Title,
        "Tag of the source that is scanned before a release.",
    ),
]);
