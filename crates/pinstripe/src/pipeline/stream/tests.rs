use super::ahead::Room;

#[test]
fn room_is_bounded_but_lets_one_through() {
    let room = Room::new(10);
    let one = room.try_take(100).expect("an empty room takes anything");
    assert!(room.try_take(1).is_none());
    drop(one);
    let (a, _b) = (room.try_take(6).unwrap(), room.try_take(4).unwrap());
    assert!(room.try_take(1).is_none());
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| room.take(5));
        drop(a);
        drop(waiting.join().unwrap());
    });
    let _all = room.try_take(6).unwrap();
    assert!(room.try_take(1).is_none());
    room.close();
    drop(room.take(1));
}
