//! The Helm chart and the kustomizations: the same objects, from one source.

mod install;
mod leftovers;
mod render;
mod traffic;
mod values;
