//! Opens the page in the user's browser.

use std::process::{Command, Stdio};

/// Variables of which one is set where windows can be shown. Elsewhere the opener might start a browser in the terminal.
const DISPLAYS: [&str; 2] = ["DISPLAY", "WAYLAND_DISPLAY"];

/// Opens an address. The user can do it as well, so a failure is none of the command.
pub fn open(address: &str) {
    let opener = if cfg!(target_os = "macos") {
        "open"
    } else if DISPLAYS.iter().any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty())) {
        "xdg-open"
    } else {
        return;
    };
    // Other users can read the arguments, and the token in them. The server lets in the connections of this user alone, where the
    // system tells whose they are.
    let mut command = Command::new(opener);
    command.arg(address).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if let Ok(mut child) = command.spawn() {
        // The opener ends by itself, and is awaited so that it leaves no zombie.
        std::thread::spawn(move || child.wait());
    }
}
