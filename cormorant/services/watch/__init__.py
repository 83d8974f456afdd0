"""Operations and job handlers of watches, wants and handovers."""
