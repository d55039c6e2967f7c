package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/gofiber/fiber/v2/middleware/adaptor"

	"partnerbilling/api"
	"partnerbilling/api/operator"
	"partnerbilling/api/web/ops"
	"partnerbilling/jobs"
	"partnerbilling/jobs/rail"
	"partnerbilling/models"
	"partnerbilling/queue"
)

// newOperatorPages returns the handler of the operators' pages and of the queue dashboard, behind
// the operators' login.
func (s *service) newOperatorPages(store *models.Store) (http.Handler, error) {
	accounts, err := s.cfg.operators()
	if err != nil {
		return nil, err
	}
	proxies, err := s.cfg.proxies()
	if err != nil {
		return nil, err
	}
	login, err := operator.New(operator.Config{
		Accounts: accounts, Proxies: proxies, Now: time.Now, Log: s.log, Metrics: s.metrics,
	})
	if err != nil {
		return nil, err
	}
	dashboard := queue.NewDashboard(s.address, func(w http.ResponseWriter, r *http.Request) bool {
		_, ok := login.Admit(w, r)
		return ok
	})
	s.closers = append(s.closers, dashboard.Close)
	lookUp, err := s.railLookUp(store)
	if err != nil {
		return nil, err
	}
	pages := ops.New(ops.Config{
		Store: store, Admit: login.Admit, LookUp: lookUp, Environment: s.cfg.Env,
		QueuesPath: queue.DashboardPath, PublicBaseURL: s.cfg.PublicBaseURL, Log: s.log,
	})
	mux := http.NewServeMux()
	mux.Handle(queue.DashboardPath, dashboard)
	mux.Handle(queue.DashboardPath+"/", dashboard)
	mux.Handle(ops.Path, pages)
	mux.Handle(ops.Path+"/", pages)
	return mux, nil
}

// railLookUp returns the function with which the operators' pages ask the rail about a rail key. It
// returns nil if the rail is a gateway whose URL or key is not configured.
func (s *service) railLookUp(store *models.Store) (func(context.Context, string) (ops.RailAnswer, error), error) {
	if s.cfg.railName() == railHTTP && (s.cfg.RailURL == "" || s.cfg.RailKey == "") {
		return nil, nil
	}
	payments, _, err := s.openRail(store, nil)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, key string) (ops.RailAnswer, error) {
		look, err := jobs.LookupDebit(ctx, store, payments, key)
		if errors.Is(err, rail.ErrInvalidKey) {
			err = fmt.Errorf("%w: %w", models.ErrInvalidID, err)
		}
		held := look.Answer.Held
		return ops.RailAnswer{
			Known: look.Known, Status: look.Answer.Status.String(), Reason: string(look.Answer.Reason),
			Detail: look.Answer.Detail, HasAmount: held.AgreementID != "", Amount: held.Amount, Currency: held.Currency,
		}, err
	}, nil
}

// operators returns the logins in SVC_OPERATORS_FILE, and the one of SVC_OPS_USERNAME and
// SVC_OPS_PASSWORD. It fails if there is none.
func (c *Config) operators() (operator.Accounts, error) {
	accounts := operator.Accounts{}
	if c.OperatorsFile != "" {
		text, err := os.ReadFile(c.OperatorsFile)
		if err == nil {
			accounts, err = operator.ParseAccounts(string(text))
		}
		if err != nil {
			return nil, fmt.Errorf("SVC_OPERATORS_FILE: %w", err)
		}
	}
	if c.OpsPassword != "" {
		role, err := operator.ParseRole(c.OpsRole)
		if err == nil {
			err = accounts.AddPassword(c.OpsUsername, c.OpsPassword, role)
		}
		if err != nil {
			return nil, fmt.Errorf("SVC_OPS_USERNAME, SVC_OPS_PASSWORD, SVC_OPS_ROLE: %w", err)
		}
	}
	if len(accounts) == 0 {
		return nil, errors.New("SVC_OPERATORS_FILE or SVC_OPS_PASSWORD must name an operator")
	}
	return accounts, nil
}

// mountOperatorPages adds the operators' pages to the API.
func mountOperatorPages(cfg *api.Config, pages http.Handler) {
	cfg.Mounts = append(cfg.Mounts, api.Mount{Path: ops.Path, Handler: adaptor.HTTPHandler(pages)})
}
