//! Packs the relocations of the static binary, which all are of one kind: 0.3 MB less on disk and in each Pod's memory, since
//! every one of them is read when the agent starts.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |variable: &str, wanted: &str| {
        std::env::var(variable).is_ok_and(|values| values.split(',').any(|value| value == wanted))
    };
    // The C library has to know the packed form. One that is linked in does from glibc 2.36 on; another may be older.
    if is("CARGO_CFG_TARGET_ENV", "gnu") && is("CARGO_CFG_TARGET_FEATURE", "crt-static") {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}
