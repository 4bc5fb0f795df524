// Package dashboard shows people and programs what the agent knows, as JSON and as a stream of events.
//
//	agent                     dashboard                                  admin door
//	  OnSplit  ------------->   feed: the last events, in a ring   [1]
//	                              |  \
//	                              |   run: a log line for each     [2]
//	                              |
//	  Splits() <--- run: counts, twice a window, for rates         [3]
//	                              |
//	                            events: the feed as a stream       [4]  /api/v1/events
//	  Splits() <---------------  splits: what is divided now       [5]  /api/v1/splits
//	  Stats()  <---------------  stats: totals                     [6]  /api/v1/stats
//	  Rules()  <---------------  rules: with their bounds          [7]  /api/v1/rules
//
// # Who owns what
//
// The agent owns what is shown; a request reads it. The feed alone is kept here: the agent forgets a bucket when it is whole
// again. Its ring is all the memory that events take, however many clients there are and however slowly they
// read: each has a place in the ring, and one that is overtaken is told how much it missed.
//
// # Keys
//
// The text of keys is shown as it is, or, where that is configured (Config.Redact), as a hash under the store's secret: every agent of
// the fleet shows the same hash for a key, and without the secret nobody finds the key by trying.
//
// # What it does not do
//
// It asks no store: where a part of a bucket lives it is told (Config.Master). It changes nothing. It has no page yet.
package dashboard
