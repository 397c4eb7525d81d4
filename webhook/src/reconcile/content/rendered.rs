//! The rendered objects of content on disk, as a sealed file (`content::sealed_file`). The file
//! contains each object as JSON, and an index for reading single objects.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::Path;

use bundle_core::footprint::Footprint;
use bundle_core::format::Content;
use bundle_core::format::helm::RenderedApis;
use bundle_core::json;
use bundle_core::object::CustomKind;
use bundle_core::object::{Manifest, ObjectId};
use bundle_core::package::{Format, Package};
use bundle_core::plan::inventory;
use bundle_core::version::Kubernetes;
use bundle_oci::unpack::FileSink as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::reconcile::content::sealed_file::{
    FileLocation, FinishedFile, IndexDecoder, Seal, SealedFile, SealedFileWriter, ValidSeal,
    damaged, encode_bytes, encode_number,
};

/// Kind and version of the sealed file. The seal covers this text.
const PURPOSE: &str = "rendered 1";
/// Maximum length of an index, in bytes. 25,000 objects with names of 200 bytes each need less than
/// 8 MiB.
const MAX_INDEX_BYTES: u64 = 8 << 20;
/// Memory of a prepared object in addition to its parsed JSON, in bytes: names, labels and kind.
pub(in crate::reconcile) const PER_OBJECT: u64 = 3 << 10;
/// Maximum nesting depth that the JSON parser accepts.
const MAX_DEPTH: usize = 127;

/// Facts about the content that are needed for preparing and applying single objects.
#[derive(Debug, Serialize, Deserialize)]
struct RenderedHeader {
    format: String,
    package: Option<PackageFacts>,
    kinds: Vec<DefinedKind>,
    /// The API versions for which a chart was rendered. `None` for other formats.
    apis: Option<RenderedApis>,
}

#[derive(Debug, Serialize, Deserialize)]
struct PackageFacts {
    name: String,
    version: String,
    kubernetes: Option<Kubernetes>,
}

/// A [`CustomKind`] in the encoding of the file.
#[derive(Debug, Serialize, Deserialize)]
struct DefinedKind {
    group: String,
    kind: String,
    plural: String,
    namespaced: bool,
    versions: Vec<String>,
}

impl RenderedHeader {
    fn of(content: &Content, apis: Option<&RenderedApis>) -> Self {
        let kinds = CustomKind::all(&content.objects).into_iter();
        Self {
            format: content.format.to_string(),
            package: content.package.as_ref().map(|package| PackageFacts {
                name: package.name.clone(),
                version: package.version.to_string(),
                kubernetes: package.kubernetes.clone(),
            }),
            kinds: kinds
                .map(|kind| DefinedKind {
                    group: kind.group,
                    kind: kind.kind,
                    plural: kind.plural,
                    namespaced: kind.namespaced,
                    versions: kind.versions,
                })
                .collect(),
            apis: apis.cloned(),
        }
    }

    /// Returns the format and the package. The package contains only its name, its version and its
    /// range of Kubernetes versions.
    fn package(&self) -> Option<(Format, Option<Package>)> {
        let format = self.format.parse().ok()?;
        let package = match &self.package {
            None => None,
            Some(facts) => Some(Package {
                kubernetes: facts.kubernetes.clone(),
                ..Package::new(&facts.name, &facts.version, format).ok()?
            }),
        };
        Some((format, package))
    }

    fn into_kinds(self) -> Vec<CustomKind> {
        let kinds = self.kinds.into_iter().map(|kind| CustomKind {
            group: kind.group,
            kind: kind.kind,
            plural: kind.plural,
            namespaced: kind.namespaced,
            versions: kind.versions,
        });
        kinds.collect()
    }
}

fn seal<'a>(name: &'a str, key: &'a [u8]) -> Seal<'a> {
    Seal {
        purpose: PURPOSE,
        name,
        key,
    }
}

/// Returns the seal of the file. Fails if the seal is invalid. The objects are not read.
pub(super) fn valid_seal(path: &Path, name: &str, key: &[u8]) -> io::Result<ValidSeal> {
    ValidSeal::read(path, seal(name, key), MAX_INDEX_BYTES)
}

/// The objects of content and their encoded index.
pub(super) struct RenderedContent<'c> {
    content: &'c Content,
    index: Vec<u8>,
}

impl<'c> RenderedContent<'c> {
    /// Encodes the index. `apis` are the API versions for which a chart was rendered. Fails if JSON
    /// does not preserve an object exactly, or if the index is too long.
    pub(super) fn new(content: &'c Content, apis: Option<&RenderedApis>) -> io::Result<Self> {
        let mut index = Vec::new();
        encode_bytes(
            &mut index,
            &serde_json::to_vec(&RenderedHeader::of(content, apis))?,
        );
        let mut offset = 0;
        for object in &content.objects {
            if !is_preserved_by_json(&object.value, MAX_DEPTH) {
                return Err(unsupported(
                    "JSON does not preserve one of its objects exactly",
                ));
            }
            let (length, hash) = json::length_and_sha256(&object.value);
            let length = length as u64;
            let location = FileLocation {
                offset,
                length,
                hash,
            };
            offset += length;
            let tree = Footprint::deserialize(&object.value)?;
            location.encode(&mut index);
            encode_number(&mut index, tree.0);
            let ObjectId {
                group,
                version,
                kind,
                namespace,
                name,
            } = &object.id;
            let namespace = namespace.as_deref().unwrap_or_default();
            for text in [group.as_str(), version, kind, namespace, name] {
                encode_bytes(&mut index, text.as_bytes());
            }
            if index.len() as u64 > MAX_INDEX_BYTES {
                return Err(unsupported("its objects have too many or too long names"));
            }
        }
        Ok(Self { content, index })
    }

    /// Returns true if `found` is the seal of exactly these objects with this name and key. Then
    /// the file with this seal contains these objects.
    pub(super) fn is_sealed_by(&self, found: &ValidSeal, name: &str, key: &[u8]) -> bool {
        found.covers(seal(name, key), &self.index)
    }

    pub(super) fn write(
        &self,
        mut writer: SealedFileWriter,
        name: &str,
        key: &[u8],
    ) -> io::Result<FinishedFile> {
        for object in &self.content.objects {
            serde_json::to_writer(&mut writer, &object.value)?;
            writer.end_file()?;
        }
        writer.finish(&self.index, seal(name, key))
    }
}

fn unsupported(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Returns true if writing the value as JSON and parsing it again returns the same value.
fn is_preserved_by_json(value: &Value, depth: usize) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::String(_) => true,
        Value::Number(number) => {
            let read = serde_json::from_str::<Value>(&number.to_string());
            number.is_i64() || number.is_u64() || read.is_ok_and(|read| read == *value)
        }
        Value::Array(items) => {
            depth > 0
                && items
                    .iter()
                    .all(|item| is_preserved_by_json(item, depth - 1))
        }
        Value::Object(entries) => {
            depth > 0
                && entries
                    .values()
                    .all(|item| is_preserved_by_json(item, depth - 1))
        }
    }
}

/// An object to read from the file.
struct RenderedObject {
    id: ObjectId,
    location: FileLocation,
    /// Memory that the parsed object needs, in bytes.
    parsed_bytes: u64,
}

/// An object in the index.
struct IndexEntry<'a> {
    location: FileLocation,
    tree: u64,
    group: &'a str,
    version: &'a str,
    kind: &'a str,
    /// Namespace in the rendered object. Empty if the object sets no namespace.
    namespace: &'a str,
    name: &'a str,
}

impl<'a> IndexEntry<'a> {
    fn decode(from: &mut IndexDecoder<'a>) -> Option<Self> {
        Some(Self {
            location: from.location()?,
            tree: from.number()?,
            group: from.text()?,
            version: from.text()?,
            kind: from.text()?,
            namespace: from.text()?,
            name: from.text()?,
        })
    }

    fn object(&self) -> RenderedObject {
        RenderedObject {
            id: ObjectId {
                group: self.group.to_owned(),
                version: self.version.to_owned(),
                kind: self.kind.to_owned(),
                namespace: (!self.namespace.is_empty()).then(|| self.namespace.to_owned()),
                name: self.name.to_owned(),
            },
            location: self.location,
            parsed_bytes: self.tree,
        }
    }
}

/// Requested object keys of one kind and one name, by namespace. The list of a namespace is empty
/// after an object was found that can get this namespace.
type WantedKeys<'k> = HashMap<Option<&'k str>, Vec<&'k String>>;

/// Returns true if an object in `namespace` can get one of the object keys in `wanted` when its
/// namespace is set. `namespace` is empty if the object has no namespace. Removes these object keys
/// from `missing`.
///
/// Preparing an object sets a missing namespace, and removes the namespace from objects of
/// cluster-scoped kinds. Therefore a missing namespace matches every namespace.
fn take_keys<'k>(
    wanted: &mut WantedKeys<'k>,
    namespace: &'k str,
    missing: &mut BTreeSet<String>,
) -> bool {
    let mut take = |keys: &mut Vec<&String>| {
        for key in keys.drain(..) {
            missing.remove(key);
        }
    };
    if namespace.is_empty() {
        wanted.values_mut().for_each(take);
        return true;
    }
    let found = [None, Some(namespace)].map(|namespace| {
        let keys = wanted.get_mut(&namespace);
        keys.map(&mut take).is_some()
    });
    found.contains(&true)
}

/// Objects of content that were found in the index of the file. The objects are read later.
pub(in crate::reconcile) struct SelectedObjects {
    file: SealedFile,
    header: RenderedHeader,
    objects: Vec<RenderedObject>,
    missing: BTreeSet<String>,
}

impl SelectedObjects {
    /// Finds the objects that can get one of the object keys in `keys` when their namespace is set.
    /// If `keys` is `None`, finds all objects. Fails if the file was sealed with another name or
    /// another key, or if its index was changed.
    pub(super) fn find(
        path: &Path,
        (name, key): (&str, &[u8]),
        keys: Option<&BTreeSet<String>>,
    ) -> io::Result<Self> {
        let (file, index) = SealedFile::open(path, seal(name, key), MAX_INDEX_BYTES)?;
        let mut from = IndexDecoder::new(&index);
        let header = from.bytes().ok_or_else(damaged)?;
        let header = serde_json::from_slice(header)?;
        let parts: Vec<_> = keys
            .into_iter()
            .flatten()
            .filter_map(|key| Some((key, inventory::parts(key)?)))
            .collect();
        let mut wanted = HashMap::<(&str, &str, &str), WantedKeys<'_>>::new();
        for (key, (kind, namespace, name)) in &parts {
            let same = (kind.group.as_str(), kind.kind.as_str(), *name);
            let by_namespace = wanted.entry(same).or_default();
            by_namespace.entry(*namespace).or_default().push(*key);
        }
        let mut objects = Vec::new();
        let mut missing = keys.cloned().unwrap_or_default();
        while !from.is_empty() {
            let entry = IndexEntry::decode(&mut from).ok_or_else(damaged)?;
            let same = wanted.get_mut(&(entry.group, entry.kind, entry.name));
            let is_wanted = same.is_some_and(|same| take_keys(same, entry.namespace, &mut missing));
            if is_wanted || keys.is_none() {
                objects.push(entry.object());
            }
        }
        Ok(Self {
            file,
            header,
            objects,
            missing,
        })
    }

    /// Returns the API versions for which the chart was rendered. Returns `None` if the content is
    /// no chart.
    pub(in crate::reconcile) fn apis(&self) -> Option<&RenderedApis> {
        self.header.apis.as_ref()
    }

    /// Returns the requested object keys for which the content has no object.
    pub(in crate::reconcile) fn missing(&self) -> &BTreeSet<String> {
        &self.missing
    }

    /// Returns the memory that the objects need while they are read and applied, in bytes.
    pub(in crate::reconcile) fn weight(&self) -> u64 {
        self.objects.iter().fold(0, |sum: u64, object| {
            sum.saturating_add(object.location.length)
                .saturating_add(object.parsed_bytes)
                .saturating_add(PER_OBJECT)
        })
    }

    /// Reads and parses the objects, in the order of the content. Returns content with only these
    /// objects, the format, the package, and a warning if helm did not know all served API
    /// versions. Also returns the kinds that the whole content defines. Fails if an object was
    /// changed on disk.
    pub(in crate::reconcile) fn read(mut self) -> io::Result<(Content, Vec<CustomKind>)> {
        let (format, package) = self.header.package().ok_or_else(damaged)?;
        let warning = self.apis().and_then(RenderedApis::warning);
        let mut objects = Vec::with_capacity(self.objects.len());
        for RenderedObject { id, location, .. } in self.objects {
            let value = serde_json::from_slice(&self.file.read(&location)?)?;
            objects.push(Manifest {
                id,
                value,
                file: String::new(),
                line: 0,
            });
        }
        let content = Content {
            package,
            format,
            objects,
            images: Vec::new(),
            lock: None,
            warnings: warning.into_iter().collect(),
        };
        Ok((content, self.header.into_kinds()))
    }

    /// Sets the time of last use (the modification time of the file) to now.
    pub(super) fn touch(&self) -> io::Result<()> {
        self.file.touch()
    }
}
