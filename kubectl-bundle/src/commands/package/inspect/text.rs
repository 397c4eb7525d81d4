//! Description of an artifact as text. Lists are truncated, and control characters are escaped.

use std::fmt::Write as _;

use bundle_core::package::Format;

use super::report::{ArtifactKind, ImageReport, InspectReport, LayerReport};
use crate::ui::safe;

/// Maximum number of lines of each list. The output of `-o json` has all entries.
const MAX_LINES: usize = 100;
/// Maximum number of locations that are printed for an image.
const MAX_LOCATIONS: usize = 3;

/// Returns the description as text.
pub(super) fn describe(report: &InspectReport, list_objects: bool) -> String {
    let mut page = TextBuilder::default();
    head(&mut page, report);
    referrers(&mut page, report);
    page.list(
        "Platforms",
        report.platforms.iter().map(|entry| {
            let platform = entry.platform.as_deref().unwrap_or(&entry.media_type);
            format!("{} {} {} bytes", safe(platform), entry.digest, entry.bytes)
        }),
    );
    layers(&mut page, &report.layers);
    if let Some(images) = &report.images
        && !images.is_empty()
    {
        let locked = images.iter().filter(|image| image.digest.is_some()).count();
        page.line("Images", &format!("{} ({locked} locked)", images.len()));
        page.items(images.iter().map(image));
    }
    if let Some(objects) = &report.objects {
        page.line("Objects", &objects.total.to_string());
        page.items(
            objects
                .kinds
                .iter()
                .map(|(kind, count)| format!("{count:>5}  {}", safe(kind))),
        );
        if list_objects {
            // The user requested the list, so all objects are printed.
            for id in &objects.items {
                let version = id.api_version();
                page.raw(&format!("  {} {}", safe(&id.to_string()), safe(&version)));
            }
        }
    }
    if let Some(permissions) = &report.permissions
        && !permissions.rules.is_empty()
    {
        page.line("Permissions", "required to install");
        page.items(permissions.rules.iter().map(|rule| safe(&rule.to_string())));
        if !permissions.guessed.is_empty() {
            let guessed: Vec<_> = permissions
                .guessed
                .iter()
                .take(10)
                .map(|kind| safe(kind))
                .collect();
            page.raw(&format!(
                "  (without a definition in the bundle, the plural names of these \
             kinds are guesses: {})",
                guessed.join(", ")
            ));
        }
    }
    page.text
}

fn head(page: &mut TextBuilder, report: &InspectReport) {
    let facts = &report.facts;
    let package = report.package.as_ref();
    let kind = match report.kind {
        ArtifactKind::Bundle => None,
        ArtifactKind::Image => Some("an image that is not marked as a bundle"),
        ArtifactKind::Artifact => Some("another artifact"),
        ArtifactKind::Index => Some("an index: select one of its images by digest"),
    };
    page.maybe("Reference", report.reference.as_deref());
    page.maybe("Path", report.path.as_deref());
    page.line("Digest", report.digest.as_str());
    page.maybe("Kind", kind);
    page.maybe("Type", report.artifact_type.as_deref());
    let name = facts
        .name
        .as_deref()
        .or(package.map(|package| package.name.as_str()));
    page.maybe("Name", name);
    let version = facts
        .version
        .as_ref()
        .or(package.map(|package| &package.version));
    page.maybe("Version", version.map(ToString::to_string).as_deref());
    let format = facts.format.or(package.map(|package| package.format));
    page.maybe("Format", format.map(Format::as_str));
    page.maybe("Description", report.description.as_deref());
    let range = facts
        .kubernetes
        .as_ref()
        .or(package.and_then(|package| package.kubernetes.as_ref()));
    let range = range.map(|range| format!("{range} (others: {:?})", range.unsupported));
    page.maybe("Kubernetes", range.as_deref());
    if let Some(compatibility) = &report.compatibility {
        let verdict = match (&compatibility.finding, compatibility.installable) {
            (None, _) => "can be installed".to_owned(),
            (Some(finding), true) => {
                format!("can be installed, with a warning: {}", finding.message)
            }
            (Some(finding), false) => format!("cannot be installed: {}", finding.message),
        };
        page.line(&format!("On {}", compatibility.kubernetes), &verdict);
    }
    if let Some(requires) = &facts.requires {
        page.list("Needs APIs", requires.apis.iter().map(|api| safe(api)));
        page.list(
            "Needs",
            requires.packages.iter().map(|package| {
                format!("{} {}", safe(&package.name), safe(package.version.as_str()))
            }),
        );
    }
    if let Some(upgrades) = &facts.upgrades {
        let from = upgrades
            .from
            .as_ref()
            .map(|range| format!("from {}", range.as_str()));
        let least = upgrades
            .minimum
            .as_ref()
            .map(|version| format!("{version} or later"));
        let text: Vec<_> = from.into_iter().chain(least).collect();
        page.line("Upgrades", &text.join(", "));
    }
    if let Some(package) = package {
        page.list(
            "Maintainers",
            package.about.maintainers.iter().map(|one| {
                let email = one.email.as_deref().map(|text| format!(" <{text}>"));
                safe(&format!("{}{}", one.name, email.unwrap_or_default()))
            }),
        );
        page.list(
            "Links",
            package
                .about
                .links
                .iter()
                .map(|link| format!("{}: {}", safe(&link.name), safe(&link.url))),
        );
        page.list(
            "Resources",
            package
                .resources
                .iter()
                .map(|one| format!("{} ({})", safe(&one.name), safe(&one.kind))),
        );
    }
    page.list(
        "Annotations",
        report
            .annotations
            .iter()
            .map(|(key, value)| format!("{}: {}", safe(key), safe(value))),
    );
}

fn referrers(page: &mut TextBuilder, report: &InspectReport) {
    let Some(summary) = &report.referrers else {
        if report.reference.is_some() {
            page.line("Signatures", "unknown: the registry did not respond");
        }
        return;
    };
    let kinds: Vec<String> = summary
        .signatures
        .kinds
        .iter()
        .map(|(kind, count)| format!("{count} {kind}"))
        .collect();
    let text = match summary.signatures.count {
        0 => "none".to_owned(),
        count => format!(
            "{count} (not verified: see `kubectl bundle verify`): {}",
            kinds.join(", ")
        ),
    };
    page.line("Signatures", &text);
    page.list(
        "Attestations",
        summary
            .attestations
            .iter()
            .map(|(predicate_type, count)| format!("{count} {}", safe(predicate_type))),
    );
    page.list(
        "Attached",
        summary
            .referrers
            .iter()
            .map(|one| format!("{} {}", safe(&one.artifact_type), one.digest)),
    );
}

/// Prints the layers as a tree. The lowest layer is first.
fn layers(page: &mut TextBuilder, layers: &[LayerReport]) {
    if layers.is_empty() {
        return;
    }
    let bytes = layers
        .iter()
        .fold(0_u64, |sum, layer| sum.saturating_add(layer.bytes));
    page.line("Layers", &format!("{}, {bytes} bytes", layers.len()));
    let shown = layers.len().min(MAX_LINES);
    for (index, layer) in layers.iter().take(MAX_LINES).enumerate() {
        let last = index + 1 == shown && layers.len() <= MAX_LINES;
        let (branch, trunk) = if last {
            ("└─", "  ")
        } else {
            ("├─", "│ ")
        };
        page.raw(&format!(
            "  {branch} {} {} bytes {}",
            layer.digest,
            layer.bytes,
            safe(&layer.media_type)
        ));
        for (key, value) in layer.annotations.iter().take(8) {
            page.raw(&format!("  {trunk}   {}: {}", safe(key), safe(value)));
        }
    }
    page.more(layers.len());
}

fn image(image: &ImageReport) -> String {
    let mut text = safe(&image.found.image);
    if let Some(digest) = &image.digest {
        let _ = write!(text, " is {digest}");
    }
    if image.probable {
        text += ", probably";
    }
    if !image.platforms.is_empty() {
        let _ = write!(text, " ({})", safe(&image.platforms.join(", ")));
    }
    for place in image.found.places.iter().take(MAX_LOCATIONS) {
        let object = place.object.as_deref().unwrap_or(&place.file);
        let _ = write!(
            text,
            "\n      {}: {}",
            safe(object),
            safe(&place.field.to_string())
        );
    }
    if image.found.places.len() > MAX_LOCATIONS {
        let _ = write!(
            text,
            "\n      and {} more places",
            image.found.places.len() - MAX_LOCATIONS
        );
    }
    text
}

/// Buffer for text. Writes to a String cannot fail.
#[derive(Default)]
struct TextBuilder {
    text: String,
}

impl TextBuilder {
    fn raw(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn line(&mut self, label: &str, value: &str) {
        let label = format!("{}:", safe(label));
        self.raw(&format!("{label:<12} {}", safe(value)));
    }

    fn maybe(&mut self, label: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.line(label, value);
        }
    }

    fn list(&mut self, label: &str, items: impl ExactSizeIterator<Item = String>) {
        if items.len() > 0 {
            self.line(label, &items.len().to_string());
            self.items(items);
        }
    }

    fn items(&mut self, items: impl ExactSizeIterator<Item = String>) {
        let all = items.len();
        for item in items.take(MAX_LINES) {
            self.raw(&format!("  {item}"));
        }
        self.more(all);
    }

    fn more(&mut self, all: usize) {
        if all > MAX_LINES {
            self.raw(&format!(
                "  and {} more (-o json lists all)",
                all - MAX_LINES
            ));
        }
    }
}
