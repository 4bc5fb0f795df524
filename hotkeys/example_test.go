package hotkeys_test

import (
	"fmt"
	"time"

	"github.com/spillgate/spillgate/hotkeys"
	"github.com/spillgate/spillgate/limit"
)

// A key of 1,000 checks/s among keys that come once.
func Example() {
	tracker, err := hotkeys.New(hotkeys.Config{MinRate: 50})
	if err != nil {
		fmt.Println(err)
		return
	}
	viral := limit.Sum{Hi: 1, Lo: 2} // Bucket.Sum, in life
	now := int64(0)
	for i := range uint64(10_000) {
		now += int64(time.Millisecond)
		tracker.Touch(now, limit.Sum{Hi: 3, Lo: i << 20}, 1)
		tracker.Touch(now, viral, 1)
	}
	rate, class := tracker.Rate(now, viral)
	fmt.Println(rate > 990 && rate < 1010, class, tracker.Hot())
	// Output: true hot 1
}
