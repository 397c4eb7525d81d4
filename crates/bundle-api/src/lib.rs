//! The custom resources of `core.rukpak.io/v1alpha1`: types, field docs, constants and condition names.
//! Not here: any rule about them (bundle-core) or anything that talks to a server.
