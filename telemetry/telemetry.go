package telemetry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/otlptranslator"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/exemplar"

	"github.com/spillgate/spillgate/batcher"
)

// scope is the name under which OpenTelemetry files our instruments.
const scope = "github.com/spillgate/spillgate/telemetry"

// Config of a Telemetry.
type Config struct {
	// Version of the program, for BuildInfo. Default "dev".
	Version string
}

// Telemetry holds the instruments. It is safe for concurrent use.
type Telemetry struct {
	registry *prometheus.Registry
	provider *sdk.MeterProvider
	read     atomic.Pointer[source]

	callEntries, callSeconds metric.Float64Histogram
}

// source is what scrapes read, and what they have seen of it.
type source struct {
	read func() Reading
	floor
}

// New makes the instruments. It starts nothing.
func New(cfg Config) (*Telemetry, error) {
	if cfg.Version == "" {
		cfg.Version = "dev"
	}
	t := &Telemetry{registry: prometheus.NewRegistry()}
	err := errors.Join(
		t.registry.Register(collectors.NewGoCollector()),
		t.registry.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})))
	if err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	// Names go out as they stand in names.go: nothing is appended to them.
	exp, err := exporter.New(exporter.WithRegisterer(t.registry), exporter.WithoutScopeInfo(),
		exporter.WithoutTargetInfo(), exporter.WithTranslationStrategy(otlptranslator.NoTranslation))
	if err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	t.provider = sdk.NewMeterProvider(sdk.WithReader(exp), sdk.WithExemplarFilter(exemplar.AlwaysOffFilter))
	if err := t.register(t.provider.Meter(scope), newLabels(cfg.Version)); err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	return t, nil
}

// register makes an instrument for every metric of names.go.
func (t *Telemetry) register(meter metric.Meter, l *labels) error {
	observed := make(map[string]metric.Float64Observable)
	histograms := make(map[string]metric.Float64Histogram)
	counters := make(map[string]bool) // that need a floor
	var all []metric.Observable
	for _, m := range Metrics {
		var err error
		unit, help := metric.WithUnit(m.Unit), metric.WithDescription(m.Help)
		switch m.Kind {
		case Counter:
			observed[m.Name], err = meter.Float64ObservableCounter(m.Name, unit, help)
			counters[m.Name] = m.Name != PolicyAnswers // those never fall, and their series come and go
		case Gauge:
			observed[m.Name], err = meter.Float64ObservableGauge(m.Name, unit, help)
		case Histogram:
			histograms[m.Name], err = meter.Float64Histogram(m.Name, unit, help, metric.WithExplicitBucketBoundaries(m.Buckets...))
		}
		if err != nil {
			return err
		}
	}
	for _, o := range observed {
		all = append(all, o)
	}
	t.callEntries, t.callSeconds = histograms[StoreCallEntries], histograms[StoreCallSeconds]
	// [2] one callback for all, so that a scrape is one reading
	_, err := meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		from := t.read.Load()
		if from == nil {
			return nil
		}
		r := from.read()
		r.show(l, func(name string, value float64, of ...*series) {
			if counters[name] {
				value = from.above(name, value, of...)
			}
			var options []metric.ObserveOption
			for _, s := range of {
				options = append(options, s.option)
			}
			o.ObserveFloat64(observed[name], value, options...)
		})
		return nil
	}, all...)
	return err
}

// Observe has every scrape from now on call read. It is apart from New, because the agent
// that is read needs OnCall when it is made.
func (t *Telemetry) Observe(read func() Reading) { t.read.Store(&source{read: read}) }

// OnCall takes one call to the store, for agent.Config.OnCall. [3]
//
// Not on the path of a check: once for each call. 0 allocations, no lock that a scrape holds for long.
func (t *Telemetry) OnCall(c batcher.CallInfo) {
	t.callEntries.Record(context.Background(), float64(c.Entries))
	t.callSeconds.Record(context.Background(), c.Took.Seconds())
}

// Handler serves the metrics in Prometheus's text format, [1].
func (t *Telemetry) Handler() http.Handler {
	return promhttp.HandlerFor(t.registry, promhttp.HandlerOpts{})
}

// Shutdown releases the instruments. Scrapes then show the process only.
func (t *Telemetry) Shutdown(ctx context.Context) error {
	if err := t.provider.Shutdown(ctx); err != nil {
		return fmt.Errorf("telemetry: %w", err)
	}
	return nil
}
