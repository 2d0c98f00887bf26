//! Writes reports of invented runs, only for looking at them: `sample FOLDER`.

mod invented;

use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let folder = env::args().nth(1).unwrap_or_else(|| ".".to_owned());
    let folder = Path::new(&folder);
    fs::create_dir_all(folder)?;
    for (name, runs) in [("sample", invented::suite()), ("sample-wide", invented::many(20))] {
        let page = report::html(&runs)
            .replace("Message brokers, measured", "SAMPLE: invented, not measured");
        fs::write(folder.join(format!("{name}.html")), page)?;
    }
    Ok(())
}
