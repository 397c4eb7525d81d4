//! Inventories as ConfigMaps: compressed JSON in `binaryData`. bundle-webhook writes these
//! ConfigMaps. bundle-webhook and kubectl-bundle read these ConfigMaps. The rules of inventories
//! are in `bundle_core::plan::inventory`.

use std::io::{Read as _, Write as _};

use bundle_core::plan::inventory::{Inventory, InventoryError, MAX_BYTES};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::ObjectMeta;

use crate::blocking;

/// Prefix of the ConfigMap name. The uid of the BundleDeployment follows.
pub const NAME_PREFIX: &str = "inventory-";
/// The key in `binaryData` of the ConfigMap.
const DATA_KEY: &str = "inventory.json.gz";
/// Maximum size of the compressed data, in bytes. This size is slightly below the limit of the API
/// server.
const MAX_COMPRESSED: usize = 1_000_000;

/// The reason why a ConfigMap cannot be read or written as an inventory.
#[derive(Debug, thiserror::Error)]
pub enum InventoryMapError {
    /// The inventory in the ConfigMap is invalid, or too large for a ConfigMap.
    #[error(transparent)]
    Inventory(#[from] InventoryError),
    /// The ConfigMap contains no inventory.
    #[error("ConfigMap {name} is not an inventory: {why}")]
    Damaged {
        /// Name of the ConfigMap.
        name: String,
        /// Reason.
        why: String,
    },
}

/// Returns the inventory in a ConfigMap. At most [`MAX_BYTES`] are decompressed.
pub fn read(map: &ConfigMap) -> Result<Inventory, InventoryMapError> {
    let damaged = |why: &str| InventoryMapError::Damaged {
        name: map.name_any(),
        why: why.to_owned(),
    };
    let packed = map
        .binary_data
        .as_ref()
        .and_then(|data| data.get(DATA_KEY))
        .ok_or_else(|| damaged("its data is missing"))?;
    blocking::run(|| {
        let mut bytes = Vec::new();
        let most = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX);
        GzDecoder::new(packed.0.as_slice())
            .take(most.saturating_add(1))
            .read_to_end(&mut bytes)
            .map_err(|_| damaged("it is truncated, or not gzip"))?;
        Ok(Inventory::decode(&bytes)?)
    })
}

/// Returns the ConfigMap for the inventory of the BundleDeployment with this uid.
/// `resource_version` is `None` for a ConfigMap that does not exist yet.
pub fn write(
    uid: &str,
    inventory: &Inventory,
    resource_version: Option<String>,
) -> Result<ConfigMap, InventoryMapError> {
    let name = format!("{NAME_PREFIX}{uid}");
    let packed = blocking::run(|| {
        let bytes = inventory.encode()?;
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder
            .write_all(&bytes)
            .and_then(|()| encoder.finish())
            .map_err(|error| InventoryMapError::Damaged {
                name: name.clone(),
                why: error.to_string(),
            })
    })?;
    if packed.len() > MAX_COMPRESSED {
        return Err(InventoryMapError::Inventory(InventoryError::TooLarge {
            bytes: packed.len(),
            most: MAX_COMPRESSED,
        }));
    }
    Ok(ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            labels: Some(
                [(
                    "app.kubernetes.io/part-of".to_owned(),
                    "kubectl-bundle".to_owned(),
                )]
                .into(),
            ),
            resource_version,
            ..ObjectMeta::default()
        },
        binary_data: Some([(DATA_KEY.to_owned(), ByteString(packed))].into()),
        ..ConfigMap::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_inventory_is_read_back_and_damage_is_an_error() {
        let mut inventory = Inventory::new("web");
        inventory.record("ConfigMap/team-a/web", "1");
        let map = write("u", &inventory, Some("7".to_owned())).unwrap();
        assert_eq!(map.name_any(), "inventory-u");
        assert_eq!(map.metadata.resource_version.as_deref(), Some("7"));
        assert_eq!(read(&map).unwrap(), inventory);
        let mut damaged = map.clone();
        damaged.binary_data = Some([(DATA_KEY.to_owned(), ByteString(b"x".to_vec()))].into());
        for map in [damaged, ConfigMap::default()] {
            assert!(matches!(read(&map), Err(InventoryMapError::Damaged { .. })));
        }
    }

    #[test]
    fn rejects_decompression_bomb_and_accepts_large_inventory() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&vec![b' '; MAX_BYTES + 10]).unwrap();
        let mut bomb = write("u", &Inventory::new("web"), None).unwrap();
        bomb.binary_data =
            Some([(DATA_KEY.to_owned(), ByteString(encoder.finish().unwrap()))].into());
        assert!(matches!(
            read(&bomb),
            Err(InventoryMapError::Inventory(
                InventoryError::TooLarge { .. }
            ))
        ));
        let mut large = Inventory::new("web");
        for n in 0..10_000_u64 {
            let uid = format!(
                "{:08x}-{:04x}-4000-8000-{:012x}",
                n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32,
                n & 0xffff,
                n.wrapping_mul(0xD1B5_4A32_D192_ED03) >> 16
            );
            large.record(format!("ConfigMap/team-a/item-{n:05}"), uid);
        }
        let map = write("u", &large, None).unwrap();
        assert_eq!(read(&map).unwrap(), large);
    }
}
