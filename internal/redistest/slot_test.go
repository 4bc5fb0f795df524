package redistest

import "testing"

func TestSlot(t *testing.T) {
	for key, want := range map[string]int{
		"":                     0,
		"123456789":            0x31c3 % numSlots, // the check value of CRC16/XMODEM
		"foo":                  12182,
		"{user1000}.following": Slot("user1000"),
		"foo{}{bar}":           8363, // an empty tag is no tag
		"foo{{bar}}zap":        Slot("{bar"),
		"foo{bar}{zap}":        Slot("bar"),
	} {
		if got := Slot(key); got != want {
			t.Errorf("Slot(%q) = %d, want %d", key, got, want)
		}
	}
}
