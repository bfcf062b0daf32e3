//! The names on a disk: directories as readers see them, as a power loss leaves them, and the
//! changes between the two. A name is durable only after its directory was synced.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path, PathBuf};

use crate::chance::Chance;
use crate::fault::power_loss::Unsynced;

/// A file's identity, whatever its names.
pub type FileId = u64;
type DirectoryId = u64;

const ROOT: DirectoryId = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    Directory(DirectoryId),
    File(FileId),
}

#[derive(Debug, Default)]
struct Directory {
    live: BTreeMap<String, Entry>,
    durable: BTreeMap<String, Entry>,
}

type Place = (DirectoryId, String);

/// One change of names, which happens as a whole or not at all; `None` removes a name.
#[derive(Debug)]
struct Change(Vec<(Place, Option<Entry>)>);

#[derive(Debug)]
pub struct Names {
    directories: BTreeMap<DirectoryId, Directory>,
    /// Changes that are not durable, in their order.
    pending: Vec<Change>,
    next: u64,
}

impl Default for Names {
    fn default() -> Self {
        let directories = BTreeMap::from([(ROOT, Directory::default())]);
        Self { directories, pending: Vec::new(), next: 1 }
    }
}

impl Names {
    /// What stands at `path`.
    pub fn find(&self, path: &Path) -> io::Result<Entry> {
        let mut at = Entry::Directory(ROOT);
        for part in path.components() {
            if let Component::Normal(name) = part {
                let Entry::Directory(directory) = at else {
                    return Err(io::ErrorKind::NotADirectory.into());
                };
                let name = name.to_string_lossy();
                at = *self.directories[&directory].live.get(&*name).ok_or_else(|| missing(path))?;
            }
        }
        Ok(at)
    }

    fn directory(&self, path: &Path) -> io::Result<DirectoryId> {
        match self.find(path)? {
            Entry::Directory(directory) => Ok(directory),
            Entry::File(_) => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    fn place(&self, path: &Path) -> io::Result<Place> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let parent = self.directory(path.parent().unwrap_or_else(|| Path::new("/")))?;
        Ok((parent, name.to_string_lossy().into_owned()))
    }

    fn change(&mut self, parts: Vec<(Place, Option<Entry>)>) {
        for ((directory, name), entry) in &parts {
            let live = &mut self.directories.get_mut(directory).expect("a directory").live;
            match entry {
                Some(entry) => live.insert(name.clone(), *entry),
                None => live.remove(name),
            };
        }
        self.pending.push(Change(parts));
    }

    /// # Errors
    ///
    /// `AlreadyExists`, or the directory is missing.
    pub fn create_file(&mut self, path: &Path) -> io::Result<FileId> {
        let place = self.place(path)?;
        if self.directories[&place.0].live.contains_key(&place.1) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let id = self.next;
        self.next += 1;
        self.change(vec![(place, Some(Entry::File(id)))]);
        Ok(id)
    }

    /// Creates the directory and its parents.
    pub fn make_directory(&mut self, path: &Path) -> io::Result<()> {
        let mut built = PathBuf::from("/");
        for part in path.components() {
            let Component::Normal(name) = part else { continue };
            built.push(name);
            match self.find(&built) {
                Ok(Entry::Directory(_)) => {}
                Ok(Entry::File(_)) => return Err(io::ErrorKind::AlreadyExists.into()),
                Err(_) => {
                    let id = self.next;
                    self.next += 1;
                    self.directories.insert(id, Directory::default());
                    let place = self.place(&built)?;
                    self.change(vec![(place, Some(Entry::Directory(id)))]);
                }
            }
        }
        Ok(())
    }

    /// Returns the file that lost its name, if `to` was one.
    pub fn rename(&mut self, from: &Path, to: &Path) -> io::Result<Option<FileId>> {
        let entry = self.find(from)?;
        let (from, to) = (self.place(from)?, self.place(to)?);
        if from == to {
            return Ok(None);
        }
        let replaced = self.directories[&to.0].live.get(&to.1).copied();
        if let Some(Entry::Directory(old)) = replaced
            && !self.directories[&old].live.is_empty()
        {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        self.change(vec![(from, None), (to, Some(entry))]);
        Ok(match replaced {
            Some(Entry::File(file)) => Some(file),
            _ => None,
        })
    }

    pub fn remove_file(&mut self, path: &Path) -> io::Result<FileId> {
        let Entry::File(file) = self.find(path)? else {
            return Err(io::ErrorKind::IsADirectory.into());
        };
        let place = self.place(path)?;
        self.change(vec![(place, None)]);
        Ok(file)
    }

    pub fn remove_directory(&mut self, path: &Path) -> io::Result<()> {
        let directory = self.directory(path)?;
        if !self.directories[&directory].live.is_empty() {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        let place = self.place(path)?;
        self.change(vec![(place, None)]);
        Ok(())
    }

    pub fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        Ok(self.directories[&self.directory(path)?].live.keys().cloned().collect())
    }

    /// Makes the names of a directory durable, with every earlier change that they rest on.
    pub fn sync(&mut self, path: &Path) -> io::Result<()> {
        let directory = self.directory(path)?;
        let mut names: BTreeSet<Place> = BTreeSet::new();
        let mut wanted = vec![false; self.pending.len()];
        for (place, change) in self.pending.iter().enumerate().rev() {
            let touches = |(at, _): &(Place, _)| at.0 == directory || names.contains(at);
            if change.0.iter().any(touches) {
                wanted[place] = true;
                names.extend(change.0.iter().map(|(at, _)| at.clone()));
            }
        }
        let mut wanted = wanted.into_iter();
        let (done, pending) = std::mem::take(&mut self.pending)
            .into_iter()
            .partition(|_| wanted.next() == Some(true));
        self.pending = pending;
        self.persist(done);
        Ok(())
    }

    fn persist(&mut self, changes: Vec<Change>) {
        for ((directory, name), entry) in changes.into_iter().flat_map(|change| change.0) {
            let Some(directory) = self.directories.get_mut(&directory) else { continue };
            match entry {
                Some(entry) => directory.durable.insert(name, entry),
                None => directory.durable.remove(&name),
            };
        }
    }

    /// Whether every name is durable.
    pub fn is_clean(&self) -> bool {
        self.pending.is_empty()
    }

    /// Power fails: each pending change is there or not, by its own draw; one that rests on a lost
    /// one is lost too. Returns how many were lost.
    pub fn lose_power(&mut self, unsynced: Unsynced, chance: &mut Chance) -> u64 {
        let pending = std::mem::take(&mut self.pending);
        let first = chance.below(pending.len() as u64 + 1) as usize;
        let mut gone: BTreeSet<Place> = BTreeSet::new();
        let mut kept = Vec::new();
        let mut lost = 0;
        for (place, change) in pending.into_iter().enumerate() {
            let keeps = match unsynced {
                Unsynced::Lost => false,
                Unsynced::Kept => true,
                Unsynced::Torn => chance.one_in(2),
                Unsynced::Prefix => place < first,
            };
            if keeps && !change.0.iter().any(|(at, _)| gone.contains(at)) {
                kept.push(change);
            } else {
                gone.extend(change.0.into_iter().map(|(at, _)| at));
                lost += 1;
            }
        }
        self.persist(kept);
        for directory in self.directories.values_mut() {
            directory.live.clone_from(&directory.durable);
        }
        lost
    }

    /// Every file that some name may still lead to, now or after a power loss.
    pub fn files(&self) -> BTreeSet<FileId> {
        let file = |entry: &Entry| match entry {
            Entry::File(file) => Some(*file),
            Entry::Directory(_) => None,
        };
        let named = self
            .directories
            .values()
            .flat_map(|directory| directory.live.values().chain(directory.durable.values()));
        let pending = self.pending.iter().flat_map(|change| &change.0);
        named
            .filter_map(file)
            .chain(pending.filter_map(|(_, entry)| file(entry.as_ref()?)))
            .collect()
    }

    /// Every file with its path.
    pub fn paths(&self) -> Vec<(PathBuf, FileId)> {
        self.paths_under(Path::new("/"))
    }

    /// Every file whose path begins so, with it, ascending.
    pub fn paths_under(&self, path: &Path) -> Vec<(PathBuf, FileId)> {
        let mut found = Vec::new();
        match self.find(path) {
            Ok(Entry::Directory(top)) => self.walk(path, top, &mut found),
            Ok(Entry::File(file)) => found.push((path.to_owned(), file)),
            Err(_) => {}
        }
        found
    }

    /// In the order of the names, which is that of the paths.
    fn walk(&self, path: &Path, directory: DirectoryId, found: &mut Vec<(PathBuf, FileId)>) {
        for (name, entry) in &self.directories[&directory].live {
            let path = path.join(name);
            match entry {
                Entry::Directory(child) => self.walk(&path, *child, found),
                Entry::File(file) => found.push((path, *file)),
            }
        }
    }
}

fn missing(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("{} does not exist", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lose(names: &mut Names, unsynced: Unsynced) {
        names.lose_power(unsynced, &mut Chance::new(5, "names"));
    }

    fn exists(names: &Names, path: &str) -> bool {
        names.find(Path::new(path)).is_ok()
    }

    #[test]
    fn a_name_is_durable_after_its_directory_was_synced() {
        let mut names = Names::default();
        names.make_directory(Path::new("/data")).unwrap();
        names.create_file(Path::new("/data/a")).unwrap();
        names.sync(Path::new("/data")).unwrap();
        lose(&mut names, Unsynced::Lost);
        // Its own directory was not.
        assert!(!exists(&names, "/data/a"));

        names.make_directory(Path::new("/data")).unwrap();
        names.sync(Path::new("/")).unwrap();
        names.create_file(Path::new("/data/a")).unwrap();
        names.sync(Path::new("/data")).unwrap();
        names.create_file(Path::new("/data/b")).unwrap();
        lose(&mut names, Unsynced::Lost);
        assert!(exists(&names, "/data/a"));
        assert!(!exists(&names, "/data/b"));
    }

    #[test]
    fn files_are_found_in_the_order_of_their_paths() {
        let mut names = Names::default();
        for directory in ["/data/a", "/data/a-b", "/data/b"] {
            names.make_directory(Path::new(directory)).unwrap();
        }
        for file in ["/data/b/1", "/data/a-b/1", "/data/a/2", "/data/a/10", "/data/a.c", "/other"] {
            names.create_file(Path::new(file)).unwrap();
        }
        let found = names.paths_under(Path::new("/data"));
        assert_eq!(found.len(), 5);
        assert!(found.is_sorted(), "{found:?}");
        assert_eq!(names.paths_under(Path::new("/data/a.c")), found[3..4].to_vec());
    }

    #[test]
    fn a_rename_is_whole() {
        for seed in 0..50 {
            let mut names = Names::default();
            names.create_file(Path::new("/new")).unwrap();
            names.create_file(Path::new("/old")).unwrap();
            names.sync(Path::new("/")).unwrap();
            names.rename(Path::new("/new"), Path::new("/old")).unwrap();
            names.lose_power(Unsynced::Torn, &mut Chance::new(seed, "names"));
            assert!(exists(&names, "/old"));
            let new = names.find(Path::new("/old")).unwrap() == Entry::File(1);
            assert_eq!(exists(&names, "/new"), !new);
        }
    }

    #[test]
    fn a_removed_name_may_come_back() {
        let mut names = Names::default();
        names.create_file(Path::new("/a")).unwrap();
        names.sync(Path::new("/")).unwrap();
        names.remove_file(Path::new("/a")).unwrap();
        assert!(names.files().contains(&1));
        lose(&mut names, Unsynced::Lost);
        assert!(exists(&names, "/a"));
    }
}
