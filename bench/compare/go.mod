module github.com/spillgate/spillgate/bench/compare

go 1.26.8

replace github.com/spillgate/spillgate => ../..

require (
	github.com/spillgate/spillgate v0.0.0-00010101000000-000000000000
	github.com/tidwall/redcon v1.6.4
)

require (
	github.com/tidwall/btree v1.1.0 // indirect
	github.com/tidwall/match v1.1.1 // indirect
)
