//! Search for images in objects: pod specs, known fields of custom resources, and texts that are
//! probably images.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::{Evidence, FieldPath, FoundImage, ImageLocation, Step, known, resemblance};
use crate::{
    diagnostic::{Finding, codes},
    object::Manifest,
    package::{self, Package},
    version::apis,
};

/// Lists of containers in a pod spec.
const CONTAINERS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];

/// Maximum memory of the images in one content, in bytes: enough for about 7,000 locations.
const MAX_MEMORY: usize = 8 << 20;
/// Memory of one location without its texts, in bytes.
const PLACE: usize = 256;
/// Memory of one step of a path without its text, in bytes.
const STEP: usize = 64;

/// Returns all images of the objects and of the list in `bundle.yaml`, in order of appearance.
/// Locations with the same text belong to one image. Returns an error if the images need more than
/// 8 MiB of memory.
pub fn find(objects: &[Manifest], package: Option<&Package>) -> Result<Vec<FoundImage>, Finding> {
    let mut allowance = Allowance::default();
    let mut images = Vec::<FoundImage>::new();
    let mut known = BTreeMap::<String, usize>::new();
    let mut add = |image: String, place: ImageLocation| {
        let index = *known.entry(image.clone()).or_insert_with(|| {
            images.push(FoundImage {
                image,
                places: Vec::new(),
            });
            images.len() - 1
        });
        images[index].places.push(place);
    };
    for object in objects {
        for hit in of_object(object, &mut allowance)? {
            let place = ImageLocation {
                object: Some(object.id.to_string()),
                field: hit.field,
                file: object.file.clone(),
                line: object.line,
                evidence: hit.evidence,
            };
            add(hit.image, place);
        }
    }
    for (index, image) in package.iter().flat_map(|p| p.images.iter()).enumerate() {
        let place = ImageLocation {
            object: None,
            field: FieldPath(vec![
                Step::Key("images".to_owned()),
                Step::Item(index),
                Step::Key("image".to_owned()),
            ]),
            file: package::FILE.to_owned(),
            line: 1,
            evidence: Evidence::Field,
        };
        add(image.image.clone(), place);
    }
    Ok(images)
}

/// Remaining memory for the images of one content.
pub(super) struct Allowance {
    /// Remaining memory in bytes.
    left: usize,
}

impl Default for Allowance {
    fn default() -> Self {
        Self { left: MAX_MEMORY }
    }
}

fn too_many(object: &Manifest) -> Finding {
    Finding::error(
        codes::format::TOO_COMPLEX,
        format!(
            "the images up to this object need more than {} MiB of memory, including their paths",
            MAX_MEMORY >> 20
        ),
    )
    .in_file(&object.file)
    .at_line(object.line)
    .about(object.id.to_string())
    .hint("split the objects into several bundles")
}

/// Image in a field of an object.
pub(super) struct FoundField {
    pub(super) image: String,
    pub(super) field: FieldPath,
    pub(super) evidence: Evidence,
}

/// Returns the images of one object, in the order of its fields. Returns an error if the images
/// need more than the remaining memory.
pub(super) fn of_object(
    object: &Manifest,
    allowance: &mut Allowance,
) -> Result<Vec<FoundField>, Finding> {
    let (group, kind) = (object.id.group.as_str(), object.id.kind.as_str());
    if known::PATTERNS.contains(&group)
        || (group.is_empty() && matches!(kind, "ConfigMap" | "Secret"))
    {
        return Ok(Vec::new());
    }
    let mut walk = ImageSearch {
        built_in: apis::is_built_in(group),
        path: Vec::new(),
        seen: BTreeSet::new(),
        hits: Vec::new(),
        place: PLACE + object.file.len() + object.id.to_string().len(),
        left: Some(allowance.left),
    };
    for field in known::fields(group, kind) {
        let steps: Vec<&'static str> = field.split('.').collect();
        walk.known(&object.value, &steps);
    }
    if let Value::Object(map) = &object.value {
        for (key, value) in map {
            // The status describes the cluster, and the metadata only names the object. Therefore
            // neither is searched.
            if key != "status" && key != "metadata" {
                walk.key(key, value);
            }
        }
    }
    allowance.left = walk.left.ok_or_else(|| too_many(object))?;
    Ok(walk.hits)
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum PathStep<'v> {
    Key(&'v str),
    Item(usize),
}

struct ImageSearch<'v> {
    built_in: bool,
    path: Vec<PathStep<'v>>,
    /// Paths of the images that were found so far, each with the text before the image in its
    /// field.
    seen: BTreeSet<(Vec<PathStep<'v>>, Option<&'v str>)>,
    hits: Vec<FoundField>,
    /// Memory of a location without image and path, in bytes.
    place: usize,
    /// Remaining memory, in bytes; `None` if the memory was not sufficient.
    left: Option<usize>,
}

impl<'v> ImageSearch<'v> {
    /// Adds the images at a known path. `steps` are the remaining steps of the path below `value`.
    fn known(&mut self, value: &'v Value, steps: &[&'static str]) {
        let Some((first, rest)) = steps.split_first() else {
            if let Value::String(text) = value
                && is_literal(text)
            {
                self.add(text, Evidence::Field, None);
            }
            return;
        };
        match (value, *first) {
            (Value::Array(items), "*") => {
                for (index, item) in items.iter().enumerate() {
                    self.path.push(PathStep::Item(index));
                    self.known(item, rest);
                    self.path.pop();
                }
            }
            (Value::Object(map), key) => {
                if let Some(value) = map.get(key) {
                    self.path.push(PathStep::Key(key));
                    self.known(value, rest);
                    self.path.pop();
                }
            }
            _ => {}
        }
    }

    fn key(&mut self, key: &'v str, value: &'v Value) {
        self.path.push(PathStep::Key(key));
        match value {
            Value::Array(items) if CONTAINERS.contains(&key) => {
                self.items(items, Self::container);
            }
            Value::Array(items) if key == "volumes" => self.items(items, Self::volume),
            Value::Array(items) if key == "env" => self.items(items, Self::variable),
            Value::Array(items) if matches!(key, "args" | "command") => self.arguments(items),
            Value::String(text) if !self.built_in => {
                if let Some(evidence) = resemblance::field(key, text) {
                    self.add(text, evidence, None);
                }
            }
            _ => {}
        }
        self.down(value);
        self.path.pop();
    }

    fn down(&mut self, value: &'v Value) {
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    self.key(key, value);
                }
            }
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.path.push(PathStep::Item(index));
                    self.down(item);
                    self.path.pop();
                }
            }
            _ => {}
        }
    }

    fn items(&mut self, items: &'v [Value], one: impl Fn(&mut Self, &'v Map<String, Value>)) {
        for (index, item) in items.iter().enumerate() {
            if let Value::Object(map) = item {
                self.path.push(PathStep::Item(index));
                one(self, map);
                self.path.pop();
            }
        }
    }

    fn container(&mut self, map: &'v Map<String, Value>) {
        let name = map.get("name").and_then(Value::as_str);
        let Some(image) = map.get("image").and_then(Value::as_str) else {
            return;
        };
        // The sidecar injector of Istio replaces `auto` with an image.
        let injected = image == "auto" && name == Some("istio-proxy");
        // If the image is empty, another program sets the image later. In custom resources the
        // field `containers` can have another meaning.
        if image.is_empty() || injected || (!self.built_in && !is_literal(image)) {
            return;
        }
        self.path.push(PathStep::Key("image"));
        self.add(image, Evidence::Field, None);
        self.path.pop();
    }

    fn volume(&mut self, map: &'v Map<String, Value>) {
        let Some(Value::Object(image)) = map.get("image") else {
            return;
        };
        let Some(reference) = image.get("reference").and_then(Value::as_str) else {
            return;
        };
        if reference.is_empty() || (!self.built_in && !is_literal(reference)) {
            return;
        }
        self.path.push(PathStep::Key("image"));
        self.path.push(PathStep::Key("reference"));
        self.add(reference, Evidence::Field, None);
        self.path.truncate(self.path.len() - 2);
    }

    fn variable(&mut self, map: &'v Map<String, Value>) {
        let text = |key| map.get(key).and_then(Value::as_str);
        if let (Some(name), Some(value)) = (text("name"), text("value"))
            && let Some(evidence) = resemblance::variable(name, value)
        {
            self.path.push(PathStep::Key("value"));
            self.add(value, evidence, None);
            self.path.pop();
        }
    }

    /// Adds images in arguments: `--image=web:1.4.0`, and `--image` followed by `web:1.4.0`.
    fn arguments(&mut self, items: &'v [Value]) {
        let mut flag_before = None;
        for (index, item) in items.iter().enumerate() {
            let flag = flag_before.take();
            let Value::String(text) = item else {
                continue;
            };
            self.path.push(PathStep::Item(index));
            if !text.starts_with('-') {
                let evidence = flag.and_then(|flag: &str| resemblance::argument(flag, text));
                if let Some(evidence @ Evidence::Name) = evidence {
                    self.add(text, evidence, None);
                }
            } else if let Some((flag, value)) = text.split_once('=') {
                if let Some(evidence) = resemblance::argument(flag, value) {
                    self.add(value, evidence, Some(&text[..=flag.len()]));
                }
            } else {
                flag_before = Some(text.as_str());
            }
            self.path.pop();
        }
    }

    fn add(&mut self, image: &str, evidence: Evidence, before: Option<&'v str>) {
        let Some(left) = self.left else {
            return;
        };
        let steps = self.path.iter().map(|at| match at {
            PathStep::Key(key) => STEP + key.len(),
            PathStep::Item(_) => STEP,
        });
        let texts = image.len() + before.map_or(0, str::len);
        self.left = left.checked_sub(self.place + texts + steps.sum::<usize>());
        // A field can be found twice: as a known field, and by its shape. The first result is kept.
        if self.left.is_none() || !self.seen.insert((self.path.clone(), before)) {
            return;
        }
        let steps = self.path.iter().map(|at| match at {
            PathStep::Key(key) => Step::Key((*key).to_owned()),
            PathStep::Item(index) => Step::Item(*index),
        });
        let before = before.map(|text| Step::After(text.to_owned()));
        self.hits.push(FoundField {
            image: image.to_owned(),
            field: FieldPath(steps.chain(before).collect()),
            evidence,
        });
    }
}

/// Returns `true` if the text is an image reference and not a template.
fn is_literal(text: &str) -> bool {
    super::ImageReference::parse(text).is_ok()
}
