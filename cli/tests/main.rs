//! The plugin's program, as a process: on a real API server with the controller and no kubelets, on a terminal, and with
//! files.

mod bench;
mod completion;
mod controller;
mod files;
mod fixture;
mod live;
mod pods;
mod terminal;
