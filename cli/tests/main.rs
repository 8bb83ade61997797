//! Runs the plugin as a process: with a real API server and the controller but without kubelets, on a terminal, and with
//! files.

mod bench;
mod browser;
mod causes;
mod change;
mod completion;
mod controller;
mod events;
mod files;
mod fixture;
mod live;
mod nodes;
mod pods;
mod terminal;
mod ui;
mod wait;
