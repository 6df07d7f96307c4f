//! What hardware this host has: GPUs from NVML where there is one, else from a file. It refuses to know who uses it.

use std::path::{Path, PathBuf};

use denv_schema::wire::{Gpu, Inventory};
use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;

/// The host's hardware, and what could not be seen of it, for people. NVML is believed before `file`, which is YAML
/// or JSON of the same form as a host's report.
pub fn read(file: Option<&Path>) -> Result<(Inventory, Vec<String>), InventoryError> {
    let mut problems = Vec::new();
    let gpus = match gpus() {
        Ok(gpus) => gpus,
        Err(error) => {
            problems.push(format!("cannot read the GPUs: {error}"));
            None
        }
    };
    let inventory = match (gpus, file) {
        (Some(gpus), _) => Inventory { gpus, ..machine()? },
        (None, Some(path)) => from_file(path)?,
        (None, None) => machine()?,
    };
    Ok((inventory, problems))
}

#[derive(Debug, thiserror::Error)]
pub enum InventoryError {
    #[error("cannot read the inventory `{path}`")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("the inventory `{path}` is not of the form `{{cpus: 8, memoryBytes: 1024, gpus: []}}`")]
    Format { path: PathBuf, source: Box<serde_yaml::Error> },
    #[error("cannot read how much memory this machine has")]
    Memory(#[source] sysinfo::Error),
}

fn from_file(path: &Path) -> Result<Inventory, InventoryError> {
    let at = |source| InventoryError::Read { path: path.to_owned(), source };
    let text = std::fs::read_to_string(path).map_err(at)?;
    serde_yaml::from_str(&text)
        .map_err(|source| InventoryError::Format { path: path.to_owned(), source: Box::new(source) })
}

/// None: there is no NVML here, so no GPU of its maker.
fn gpus() -> Result<Option<Vec<Gpu>>, NvmlError> {
    let nvml = match Nvml::init() {
        Ok(nvml) => nvml,
        Err(NvmlError::LibloadingError(_) | NvmlError::LibraryNotFound | NvmlError::DriverNotLoaded) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let gpu = |index| {
        let device = nvml.device_by_index(index)?;
        Ok(Gpu { index, model: device.name()?, memory_bytes: device.memory_info()?.total })
    };
    (0..nvml.device_count()?).map(gpu).collect::<Result<_, _>>().map(Some)
}

fn machine() -> Result<Inventory, InventoryError> {
    let mut system = sysinfo::System::new().map_err(InventoryError::Memory)?;
    system.refresh_memory();
    // What this process may use, which in a container is less than the machine has.
    let cpus = std::thread::available_parallelism()
        .map_or(1, |count| u32::try_from(count.get()).unwrap_or(u32::MAX));
    Ok(Inventory { cpus, memory_bytes: system.total_memory(), ..Inventory::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_stands_in_for_gpus_that_are_not_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("inventory.yaml");
        let text = "cpus: 8\nmemoryBytes: 1024\ngpus:\n- {index: 0, model: h200, memoryBytes: 141}\n";
        std::fs::write(&path, text).unwrap();
        let inventory = from_file(&path).unwrap();
        assert_eq!((inventory.cpus, inventory.gpus.len()), (8, 1));

        std::fs::write(&path, "cpus: many\n").unwrap();
        assert!(from_file(&path).unwrap_err().to_string().contains("inventory.yaml"));
        assert!(from_file(&dir.path().join("none")).is_err());
        let machine = machine().unwrap();
        assert!(machine.cpus > 0 && machine.memory_bytes > 0);
    }
}
