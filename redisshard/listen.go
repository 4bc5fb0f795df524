package redisshard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// listenPing is how long a subscription may be silent before it is asked for a sign of life, and how long that may
// take: a server that has vanished without a word is noticed after twice that.
const listenPing = 3 * time.Second

var (
	errSilent = errors.New("redisshard: the subscription to pushed rules does not answer")
	errMoved  = errors.New("redisshard: the rules have another master now")
)

// Listen calls heard with the number of each version that is pushed, until ctx ends, the connection is lost, or the rules get
// another master; it always returns an error. It calls ready once what is pushed from then on is heard. Channels know no databases: a
// number may be of rules in another database of the server.
// Whoever calls it again looks at Head when ready is called: what was pushed in between is not told.
func (r *Rules) Listen(ctx context.Context, ready func(), heard func(number int64)) error {
	n, err := r.nodes()
	if err != nil {
		return err
	}
	client, err := n.master(ctx, r.keys.head)
	if err != nil {
		n.reload(ctx)
		return err
	}
	subscription := client.Subscribe(ctx) // to nothing yet: an error would be lost here
	defer subscription.Close()
	// A read heeds deadlines alone.
	defer context.AfterFunc(ctx, func() { subscription.Close() })()
	err = r.follow(ctx, n, client, subscription, ready, heard)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if classify(err).kind.staleTopology() {
		n.reload(ctx)
	}
	return explainRules(err)
}

// follow is Listen on one connection.
func (r *Rules) follow(ctx context.Context, n *nodes, client *redis.Client, on *redis.PubSub, ready func(), heard func(int64)) error {
	if err := on.Subscribe(ctx, r.keys.channel); err != nil {
		return err
	}
	for asked := false; ; {
		message, err := on.ReceiveTimeout(ctx, listenPing)
		var network net.Error
		switch {
		case err == nil:
			asked = false
		case !errors.As(err, &network) || !network.Timeout():
			return err
		case asked:
			return errSilent
		default:
			if now, err := n.master(ctx, r.keys.head); err != nil || now != client {
				return errMoved
			}
			if err := on.Ping(ctx); err != nil {
				return err
			}
			asked = true
			continue
		}
		switch m := message.(type) {
		case *redis.Subscription:
			ready()
		case *redis.Message:
			number, err := strconv.ParseInt(m.Payload, 10, 64)
			if err != nil {
				return fmt.Errorf("redisshard: somebody else writes to %s: %q is no number", r.keys.channel, m.Payload)
			}
			heard(number)
		}
	}
}
