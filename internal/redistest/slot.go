package redistest

import "strings"

// numSlots is the number of hash slots of every Redis Cluster.
const numSlots = 16384

// Slot returns the cluster slot of a key: CRC16 (XMODEM) of the key, or of its
// hash tag if it has one, modulo 16384. It is written bit by bit from the
// specification and shares nothing with the product, so tests may hold the
// product's own table against it.
func Slot(key string) int {
	if open := strings.IndexByte(key, '{'); open >= 0 {
		if tag := key[open+1:]; strings.IndexByte(tag, '}') > 0 {
			key = tag[:strings.IndexByte(tag, '}')]
		}
	}
	var crc uint16
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			carry := crc&0x8000 != 0
			crc <<= 1
			if carry {
				crc ^= 0x1021
			}
		}
	}
	return int(crc % numSlots)
}
