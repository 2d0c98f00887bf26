//! In a binary of its own: the seed belongs to the process.

use std::process::Command;
use std::{env, thread};

use base::{HashMap, collections};

const TEST: &str = "seed_fixes_the_order_of_maps_and_each_map_has_its_own_order";
/// Set in the second process.
const SECOND: &str = "SECOND_PROCESS";

fn order(map: &HashMap<u32, ()>) -> Vec<u32> {
    map.keys().copied().collect()
}

/// Two maps of a new thread.
fn two_maps() -> [HashMap<u32, ()>; 2] {
    let make = || [(); 2].map(|()| (0..100).map(|key| (key, ())).collect());
    thread::spawn(make).join().expect("it does not panic")
}

#[test]
fn seed_fixes_the_order_of_maps_and_each_map_has_its_own_order() {
    assert!(collections::seed(7));
    assert!(!collections::seed(8), "a process has one seed");
    let ([first, second], [again, _]) = (two_maps(), two_maps());
    assert_eq!(order(&first), order(&again));
    assert_ne!(order(&first), order(&second));
    let told = format!("order {:?}", order(&first));
    if env::var_os(SECOND).is_some() {
        println!("{told}");
        return;
    }
    let mut other = Command::new(env::current_exe().expect("this program has a path"));
    let output = other.args([TEST, "--exact", "--nocapture"]).env(SECOND, "yes").output();
    let output = String::from_utf8(output.expect("it runs").stdout).expect("text");
    assert!(output.contains(&told), "{told}, but in another process {output}");
}
