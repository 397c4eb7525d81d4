//! Bundles as OCI artifacts: packing, safe unpacking, layouts, and registries as they are.
//! Not here: what the manifests inside mean (bundle-core) and who signed them (bundle-trust).
